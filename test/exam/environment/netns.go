package environment

import (
	"fmt"
	"strings"
)

// redirection is the input of iptables-restore and ip6tables-restore for the workload's namespace: all of the workload's
// traffic through the proxy, or none.
func redirection(on bool) map[string]string {
	rules := map[string]string{}
	for tool, rest := range map[string]struct{ loop, self string }{
		"iptables-restore":  {"127.0.0.0/8", "127.0.0.6/32"},
		"ip6tables-restore": {"::1/128", "::6/128"},
	} {
		t := []string{"*nat", ":PREROUTING ACCEPT", ":INPUT ACCEPT", ":OUTPUT ACCEPT", ":POSTROUTING ACCEPT"}
		if on {
			t = append(t,
				"-A PREROUTING -p tcp --dport 15000:15999 -j RETURN",
				"-A PREROUTING -p tcp -j REDIRECT --to-ports 15006",
				"-A OUTPUT -s "+rest.self+" -o lo -j RETURN",
				// the proxy calling its own workload comes in again
				fmt.Sprintf("-A OUTPUT -o lo ! -d %s -p tcp -m owner --uid-owner %d -j REDIRECT --to-ports 15006", rest.loop, envoyUID),
				fmt.Sprintf("-A OUTPUT -m owner --uid-owner %d -j RETURN", envoyUID),
				"-A OUTPUT -o lo -j RETURN",
				"-A OUTPUT -d "+rest.loop+" -j RETURN",
				"-A OUTPUT -p tcp -j REDIRECT --to-ports 15001")
		}
		rules[tool] = strings.Join(append(t, "COMMIT", ""), "\n")
	}
	return rules
}
