package attack

import (
	"fmt"
	"testing"
	"time"
)

// TestTransport: which clients are let in where mutual TLS is demanded, by certificates, protocols and ports.
func TestTransport(t *testing.T) {
	b := enter(t)
	b.play(t, scene{name: "STRICT", policies: []policy{mutual("STRICT")}, attacks: join(plainText(), certificates(), protocols(), preambles(), ownPorts(b))})
	b.slowStarters(t)
}

func join(lists ...[]attack) (all []attack) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// plainText is everything without a certificate.
func plainText() (list []attack) {
	list = []attack{{"HTTP/1.1", get("/"), refused}, {"HTTP/2 with prior knowledge", get2("/"), refused}, {"bytes", line(), refused}}
	for _, port := range []int{anyPort, unnamedPort, tcpPort, bytesPort} {
		list = append(list, attack{fmt.Sprint("HTTP at port ", port), send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").at(port), refused})
	}
	for _, alpn := range []string{"istio-http/1.1", "istio", "h2", "http/1.1", "", "istio-peer-exchange", "istio-h2"} {
		h := get("/").overTLS(alpn)
		if alpn == "" {
			h.alpn = nil
		}
		list = append(list, attack{"TLS without a certificate that offers " + alpn, h, refused})
	}
	return list
}

// certificates are odd and good certificates at every kind of port.
func certificates() (list []attack) {
	for name, w := range map[string]want{
		"cli": reached, "admin": reached, "alias": reached, "prefix": reached, "foreign": refused, "expired": refused, "future": refused, "stranger": refused,
		"named": refused, "hosts": refused, "server": refused, "domain": refused, "scheme": refused, "by a workload": refused, "trust domain": refused,
	} {
		for _, port := range []int{httpPort, anyPort, unnamedPort} {
			list = append(list, attack{fmt.Sprintf("certificate %q at port %d", name, port), get("/").at(port).as(name), w})
		}
		for _, port := range []int{tcpPort, bytesPort} {
			list = append(list, attack{fmt.Sprintf("certificate %q at port %d", name, port), line().at(port).as(name), w})
		}
	}
	return list
}

// protocols are what a client with a certificate may offer.
func protocols() (list []attack) {
	for _, alpn := range [][]string{{"http/1.1"}, {"h2"}, {"istio"}, {"istio-http/1.0"}, {"evil", "istio"}} {
		list = append(list, attack{fmt.Sprint("bytes as ", alpn), line().as("stranger", alpn...), refused}, attack{fmt.Sprint("HTTP as ", alpn), get("/").as("stranger", alpn...), refused})
	}
	return list
}

// preambles are texts by which proxies pass on an address.
func preambles() (list []attack) {
	for what, first := range map[string]string{
		"version 1": "PROXY TCP4 127.0.0.1 10.76.0.2 1 8080\r\n", "version 2": "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x0a\x4c\x00\x02\x00\x01\x1f\x90",
	} {
		list = append(list, attack{"PROXY protocol, " + what, get("/").behind(first), refused},
			attack{"PROXY protocol before TLS, " + what, get("/").behind(first).as("stranger"), refused}, attack{"PROXY protocol before bytes, " + what, line().at(bytesPort).behind(first), refused})
	}
	return list
}

// ownPorts are ports of the agent, of Envoy and of the control plane.
func ownPorts(b *bed) (list []attack) {
	for _, port := range []int{15000, 15001, 15004, 15006, 15008, 15010, 15012, 15053, b.agent.AdminPort} {
		h := get("/config_dump").at(port)
		list = append(list, attack{fmt.Sprintf("plain text to %s", portName(b, port)), h, refused}, attack{fmt.Sprintf("mutual TLS to %s", portName(b, port)), h.as("cli"), refused})
	}
	for _, path := range []string{"/quitquitquit", "/restart", "/debug/secretz", "/debug/ndsz", "/debug/pprof/", "/drain", "/drain_listeners", "/config_dump", "/certs", "/token",
		"//debug/secretz", "/x/../debug/secretz"} {
		for name, port := range map[string]int{"status": b.agent.StatusPort, "health": b.agent.HealthPort, "metrics": b.agent.MetricsPort} {
			for _, method := range []string{"GET", "POST"} {
				list = append(list, attack{fmt.Sprintf("%s %s of the agent's port for %s", method, path, name), get(path).at(port).by(method).to("localhost").silent(), refused})
			}
		}
	}
	return list
}

func portName(b *bed, port int) string {
	if port == b.agent.AdminPort {
		return "Envoy's administration"
	}
	return fmt.Sprint("port ", port)
}

// slowStarters say nothing until those have given up who look at the first bytes of a connection (after 15 seconds), and then speak plain text.
func (b *bed) slowStarters(t *testing.T) {
	t.Helper()
	ports := []int{httpPort, anyPort, tcpPort, bytesPort, unnamedPort}
	done := make(chan string, len(ports))
	for _, port := range ports {
		go func() {
			c, err := b.world.Dial(t.Context(), nil, fmt.Sprintf("%s:%d", workload, port))
			if err != nil {
				done <- err.Error()
				return
			}
			defer c.Close()
			// Envoy closes the connection or lets it be; either is waited for.
			_ = c.SetDeadline(time.Now().Add(16 * time.Second))
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetDeadline(time.Now().Add(b.limit()))
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if o := firstAnswer(c); o.reached() {
				done <- fmt.Sprintf("port %d: plain text passes after 16 s of silence: %s", port, o)
				return
			}
			done <- ""
		}()
	}
	for range ports {
		if message := <-done; message != "" {
			t.Error(message)
		}
	}
}
