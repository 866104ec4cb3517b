package environment

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Missing names the obstacle to making an environment on this machine, or returns "". It tries, in a namespace of its own: the kernel may not have
// the features that the programs configure, and a container may not be allowed to use them.
func Missing(ctx context.Context, id int) string {
	if os.Geteuid() != 0 {
		return "needs root (network namespaces, redirection)"
	}
	for tool, in := range map[string]string{"ip": "iproute2", "iptables-restore": "iptables", "ip6tables-restore": "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "needs `" + tool + "` (Debian: apt-get install -y " + in + ")"
		}
	}
	probe := fmt.Sprintf("pilot-exam-%d-probe", id)
	ip := func(stdin string, args ...string) error {
		cmd := exec.CommandContext(ctx, "ip", args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.Join(strings.Fields(string(out)), " "))
		}
		return nil
	}
	_ = ip("", "netns", "del", probe) // of a killed run
	if err := ip("", "netns", "add", probe); err != nil {
		return "needs network namespaces: " + err.Error()
	}
	defer func() { _ = exec.Command("ip", "netns", "del", probe).Run() }()
	for tool, rules := range redirection(true) {
		if err := ip(rules, "netns", "exec", probe, tool, "-w", "5"); err != nil {
			return "needs iptables with owner match and REDIRECT: " + err.Error()
		}
	}
	if err := ip("", "-n", probe, "addr", "add", "fd76::2/64", "dev", "lo"); err != nil {
		return "needs IPv6: " + err.Error()
	}
	return ""
}
