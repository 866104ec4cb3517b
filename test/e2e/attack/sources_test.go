package attack

import (
	"fmt"
	"slices"
	"testing"
)

// callers are certificates in policies about identities; "" is plain text.
func callers() []string {
	return []string{"", "cli", "admin", "evil", "alias", "foreign", "two", "two turned", "lookalike", "prefix", "nested", "no usage", "domain"}
}

// source is a row of TestIdentities: which clients reach the application, and which need not be reported. All others are refused.
type source struct {
	name     string
	policies []policy
	ports    []int
	reach    []string
	unsaid   []string
}

// doubles have two identities, and one of them is good.
func doubles(more ...string) []string { return append([]string{"two", "two turned"}, more...) }

func sources() []source {
	good := []string{"admin", "alias", "no usage"}
	all := []int{httpPort, tcpPort, bytesPort, unnamedPort}
	return []source{
		{"a principal", []policy{authorize("ALLOW", from(object{"principals": []string{"cluster.local/ns/ops/sa/admin"}}))}, all, good, doubles()},
		{"all but a principal", []policy{authorize("DENY", from(object{"notPrincipals": []string{"cluster.local/ns/ops/sa/admin"}}))}, all[:2], good, doubles()},
		{"the end of a principal", []policy{authorize("ALLOW", from(object{"principals": []string{"*/ns/ops/sa/admin"}}))}, all[:1], good, doubles("nested")},
		{"the start of a principal", []policy{authorize("ALLOW", from(object{"principals": []string{"cluster.local/ns/ops/*"}}))}, all[:1], good, doubles("prefix", "lookalike")},
		{"a denied namespace", []policy{authorize("DENY", from(object{"namespaces": []string{"ops"}}))}, all, []string{"", "cli", "evil"}, []string{"nested"}},
		{"a namespace", []policy{authorize("ALLOW", from(object{"namespaces": []string{"ops"}}))}, []int{httpPort, bytesPort}, good, doubles("lookalike", "prefix")},
		{"a service account", []policy{authorize("ALLOW", from(object{"serviceAccounts": []string{"ops/admin"}}))}, all[:2], good, doubles()},
		{"anybody of the mesh", []policy{authorize("ALLOW", from(object{"principals": []string{"*"}}))}, all[:2],
			append(good, "cli", "evil", "lookalike", "prefix", "nested"), doubles()},
		{"a trust domain", []policy{authorize("ALLOW", when(is("source.trustDomain", "cluster.local")))}, all[:1],
			[]string{"cli", "admin", "evil", "no usage", "prefix"}, doubles("lookalike", "nested")},
		{"DENY before ALLOW", []policy{authorize("DENY", from(object{"namespaces": []string{"evil"}})), authorize("ALLOW", object{})}, all[:2],
			append(good, "", "cli", "prefix", "lookalike"), []string{"nested", "two", "two turned"}},
		{"nobody", []policy{authorize("ALLOW")}, all, nil, nil},
		{"from the root namespace", []policy{authorize("DENY", from(object{"notNamespaces": []string{"ops", "front"}})).everywhere()}, []int{httpPort, tcpPort, bytesPort},
			append(good, "cli", "prefix", "lookalike"), doubles()},
	}
}

// TestIdentities: identities that are one another's start, end or likeness, in every field that names a source.
func TestIdentities(t *testing.T) {
	b := enter(t)
	for _, s := range sources() {
		var list []attack
		for _, port := range s.ports {
			for _, cert := range callers() {
				h := get("/").at(port).as(cert)
				if port == tcpPort || port == bytesPort {
					h = line().at(port).as(cert)
				}
				w := refused
				switch {
				case cert == "foreign" || cert == "domain": // another trust domain
				case slices.Contains(s.reach, cert):
					w = reached
				case slices.Contains(s.unsaid, cert):
					w = either
				}
				list = append(list, attack{fmt.Sprintf("%q at port %d", cert, port), h, w})
			}
		}
		b.play(t, scene{name: s.name, policies: s.policies, attacks: list})
	}
}

// addresses are headers that claim another address of the client.
func addresses() [][]string {
	return [][]string{
		nil, {"X-Forwarded-For", "10.9.9.9"}, {"X-Forwarded-For", "10.9.9.9", "X-Forwarded-For", "1.2.3.4"}, {"X-Forwarded-For", "10.9.9.9, 1.2.3.4"}, {"X-Forwarded-For", "1.2.3.4,10.9.9.9"},
		{"X-Forwarded-For", "garbage"}, {"X-Envoy-External-Address", "10.9.9.9"}, {"X-Real-IP", "10.9.9.9"}, {"Forwarded", "for=10.9.9.9"}, {"True-Client-IP", "10.9.9.9"},
		{"X-Forwarded-For", "10.9.9.9:80"}, {"X-Forwarded-For", "::ffff:10.9.9.9"}, {"X-Forwarded-For", "010.9.9.9"}, {"X-Forwarded-For", "10.9.9.9,"}, {"X-Forwarded-For", ""},
	}
}

// TestAddresses: addresses of clients, and headers that claim others.
func TestAddresses(t *testing.T) {
	b := enter(t)
	blocks := func(action, field, block string) []policy {
		return []policy{authorize(action, from(object{field: []string{block}}))}
	}
	for _, s := range []struct {
		name     string
		policies []policy
		want     want
	}{
		{"ALLOW of a block", blocks("ALLOW", "ipBlocks", "10.9.9.0/24"), refused}, {"DENY of all but a block", blocks("DENY", "notIpBlocks", "10.9.9.0/24"), refused},
		{"DENY of the address", blocks("DENY", "ipBlocks", attacker), refused}, {"ALLOW of a remote block", blocks("ALLOW", "remoteIpBlocks", "10.9.9.0/24"), either},
		{"DENY of a remote block", blocks("DENY", "remoteIpBlocks", "10.9.9.0/24"), either},
	} {
		var list []attack
		for _, headers := range addresses() {
			for _, cert := range []string{"", "cli"} {
				list = append(list, attack{fmt.Sprintf("%q as %q", headers, cert), get("/").with(headers...).from(attacker).as(cert), s.want})
			}
		}
		list = append(list, attack{"PROXY protocol", get("/").behind("PROXY TCP4 10.9.9.9 10.76.0.2 1 8080\r\n"), refused}, attack{"bytes", line().from(attacker), s.want},
			attack{"bytes from another address", line().from(attackerToo), either})
		b.play(t, scene{name: s.name, policies: s.policies, attacks: list})
	}
}

// TestPorts: ports that are denied, or are all that is allowed.
func TestPorts(t *testing.T) {
	b := enter(t)
	at := func(port int) hit {
		switch port {
		case http2Port:
			return get2("/")
		case tcpPort, bytesPort:
			return line().at(port)
		}
		return get("/").at(port).to("x:8091")
	}
	rows := func(wants map[int]want) (list []attack) {
		for port, w := range wants {
			list = append(list, attack{fmt.Sprint("port ", port), at(port), w})
		}
		return list
	}
	b.play(t,
		scene{name: "DENY", policies: []policy{authorize("DENY", to(object{"ports": []string{"8080", "9000", "9001"}}))},
			attacks: rows(map[int]want{httpPort: refused, http2Port: reached, tcpPort: refused, bytesPort: refused, unnamedPort: reached, anyPort: reached})},
		scene{name: "ALLOW all but", policies: []policy{authorize("ALLOW", to(object{"notPorts": []string{"8080", "9000"}}))},
			attacks: rows(map[int]want{httpPort: refused, tcpPort: refused, bytesPort: reached, unnamedPort: reached})},
	)
}

// TestDetection: policies about requests at ports where Envoy looks for HTTP, and does not find it.
func TestDetection(t *testing.T) {
	b := enter(t)
	bytes := map[string]string{
		"HTTP": "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n", "in small letters": "get /admin HTTP/1.1\r\nHost: a\r\n\r\n", "a blank first": " GET /admin HTTP/1.1\r\nHost: a\r\n\r\n",
		"an empty line first": "\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/0.9": "GET /admin\r\n\r\n", "an unknown method": "FOO /admin HTTP/1.1\r\nHost: a\r\n\r\n",
		"a broken preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "a zero byte first": "\x00GET /admin HTTP/1.1\r\nHost: a\r\n\r\n", "an unknown version": "GET /admin HTTP/1.7\r\nHost: a\r\n\r\n",
		"a line": "hello\n",
	}
	for _, s := range []scene{{name: "DENY", policies: []policy{denyPaths("/admin")}}, {name: "ALLOW", policies: []policy{allowPaths("/x")}}} {
		for _, port := range []int{anyPort, unnamedPort, tcpPort, bytesPort} {
			for what, text := range bytes {
				name := fmt.Sprintf("%s at port %d", what, port)
				s.attacks = append(s.attacks, attack{name, send(text).at(port), refused}, attack{name + " over mutual TLS", send(text).at(port).as("cli"), refused})
			}
		}
		b.play(t, s)
	}
}
