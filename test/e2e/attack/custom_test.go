package attack

import (
	"strings"
	"testing"
)

// TestAuthorizers: requests that must be asked about, by every way to write them.
func TestAuthorizers(t *testing.T) {
	b := enter(t)
	for _, provider := range []string{"asker", "rpc-asker"} {
		b.play(t, scene{name: provider, policies: []policy{ask(provider, "/ask", "/ask/*")}, attacks: asked()})
	}
	no := func(path string, w want) attack { return attack{path, get(path).with(refuseHeader, "1").silent(), w} }
	b.play(t,
		scene{name: "before DENY and ALLOW", policies: []policy{ask("rpc-asker", "/ask*"), denyPaths("/ask/no"), allowPaths("/ask*", "/free")}, attacks: []attack{
			{"let through, allowed", get("/ask").silent(), reached}, no("/ask", refused), {"let through, denied", get("/ask/no"), refused}, no("/free", reached), {"not allowed", get("/other"), refused},
		}},
		scene{name: "two policies", policies: []policy{ask("rpc-asker", "/a"), ask("rpc-asker", "/b")}, attacks: []attack{no("/a", refused), no("/b", refused), no("/c", reached)}},
		scene{name: "two authorizers", policies: []policy{ask("rpc-asker", "/a"), ask("asker", "/b")}, attacks: []attack{{"/a", get("/a"), refused}, {"/b", get("/b"), refused}, {"/c", get("/c"), reached}}},
		scene{name: "no such authorizer", policies: []policy{ask("nobody", "/a")}, attacks: []attack{{"/a", get("/a"), refused}, {"/c", get("/c"), reached}}},
		scene{name: "AUDIT", policies: []policy{authorize("AUDIT", object{})}, attacks: []attack{{"HTTP", get("/"), reached}, {"bytes", line(), reached}}},
		scene{name: "a dry run", policies: []policy{denyPaths("/a").dry()}, attacks: []attack{{"/a", get("/a"), reached}}},
		scene{name: "a dry run beside DENY", policies: []policy{denyPaths("/a").dry(), denyPaths("/b")}, attacks: []attack{{"/a", get("/a"), reached}, {"/b", get("/b"), refused}}},
		scene{name: "a dry run of ALLOW", policies: []policy{allowPaths("/a").dry()}, attacks: []attack{{"/x", get("/x"), reached}}},
	)
}

// asked are requests that the authorizer refuses, if it is asked.
func asked() []attack {
	no := func(h hit) hit { return h.with(refuseHeader, "1").silent() }
	upgrade := request1("GET /ask HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: websocket", refuseHeader+": 1")
	return []attack{
		{"let through", get("/ask").silent(), reached}, {"not asked about", no(get("/x")), reached}, {"refused", no(get("/ask")), refused}, {"HTTP/2", no(get2("/ask")), refused},
		{"HTTP/2 to HTTP/1.1", no(get2("/ask/1").at(httpPort)), refused}, {"dots", no(get("/x/../ask")), refused}, {"an encoded letter", no(get("/%61sk")), refused}, {"a URL", no(get("http://x/ask")), refused},
		{"a fragment", no(get("/ask#x")), refused}, {"a query", no(get("/ask?x=1")), refused}, {"WebSocket", upgrade, refused}, {"a long body", no(get("/ask").posts(strings.Repeat("x", 100000))), refused},
		{"100-continue", no(get("/ask").posts("x").with("Expect", "100-continue")), refused}, {"trailers", no(get2("/ask").posts("x", "a", "b")), refused}, {"OPTIONS", no(get("/ask").by("OPTIONS")), refused},
		{"a preflight", no(get("/ask").by("OPTIONS").with("Origin", "x", "Access-Control-Request-Method", "GET")), refused}, {"CONNECT", request1("CONNECT a:1 HTTP/1.1", "Host: a:1", refuseHeader+": 1"), refused},
		{"mutual TLS", no(get("/ask").as("cli")), refused}, {"a detected port", no(get("/ask").at(anyPort)), refused}, {"an unnamed port", no(get("/ask").at(unnamedPort)), refused},
		{"a method in small letters", request1("get /ask HTTP/1.1", "Host: a", refuseHeader+": 1").at(unnamedPort), refused},
		{"an unknown method", request1("FOO /ask HTTP/1.1", "Host: a", refuseHeader+": 1").at(anyPort), refused},
	}
}
