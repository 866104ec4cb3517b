package attack

import (
	"fmt"
	"strings"
	"testing"
)

// denied is the request that is smuggled.
const denied = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"

// smuggled are requests that end earlier for the one than for the other, with the denied request behind.
func smuggled() map[string]string {
	post := func(body string, lines ...string) string {
		return "POST /b HTTP/1.1\r\nHost: x\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + body + denied
	}
	length := func(n int) string { return fmt.Sprint("Content-Length: ", n) }
	const chunked, last = "Transfer-Encoding: chunked", "0\r\n\r\n"
	return map[string]string{
		"a length and chunks": post(last, length(len(last)+len(denied)), chunked), "chunks and a length": post(last, chunked, length(5)), "xchunked": post(last, "Transfer-Encoding: xchunked"),
		"a blank before the colon": post(last, "Transfer-Encoding : chunked", length(len(last)+len(denied))), "a tab behind the colon": post(last, "Transfer-Encoding:\tchunked", length(len(last)+len(denied))),
		"two encodings": post(last, chunked, "Transfer-Encoding: identity"), "identity, chunked": post(last, "Transfer-Encoding: identity, chunked"), "chunked, identity": post(last, "Transfer-Encoding: chunked, identity"),
		"two lengths": post("", length(0), length(len(denied))), "a list of lengths": post("", fmt.Sprintf("Content-Length: 0, %d", len(denied))), "+ before the length": post("", fmt.Sprintf("Content-Length: +%d", len(denied))),
		"a negative length": post("", length(-1)), "a length in base 16": post("", "Content-Length: 0x1b"), "the request as a body": post("", length(len(denied))), "an extension of a chunk": post("1;a=b\r\nx\r\n"+last, chunked),
		"a line feed in an extension": post("1;\nx\r\n1b\r\n"+last, chunked), "line feeds around chunks": post("1\nx\n0\n\n", chunked), "0x before a size": post("0x1\r\nx\r\n"+last, chunked),
		"a size that overflows": post("10000000000000001\r\nx\r\n"+last, chunked), "trailers": post("0\r\nHost: y\r\nContent-Length: 4\r\n\r\n", chunked), "a carriage return in a header": "GET /b HTTP/1.1\r\nHost: x\r\nX: a\rGET /a HTTP/1.1\r\n\r\n",
		"carriage returns alone": "GET /b HTTP/1.1\rHost: x\r\r", "a line feed alone": "GET /b HTTP/1.1\r\nHost: x\r\nX: a\nY: b\r\n\r\n", "a zero byte": "GET /b HTTP/1.1\r\nHost: x\r\nX: a\x00\r\n\r\n",
		"one request behind the other": "GET /b HTTP/1.1\r\nHost: x\r\n\r\n" + denied + "GET /c HTTP/1.1\r\nHost: x\r\n\r\n", "100-continue": post("", "Expect: 100-continue", length(len(denied))),
		"chunks in HTTP/1.0": "POST /b HTTP/1.0\r\nHost: x\r\n" + chunked + "\r\n\r\n" + last + denied, "an upgrade to something": "GET /b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n" + denied,
		"WebSocket with a length": "GET /b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + length(len(denied)) + "\r\n\r\n" + denied,
		"no colon":                "GET /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding\r\n\r\n", "a blank before the first header": "GET /b HTTP/1.1\r\n X: y\r\nHost: x\r\n\r\n",
	}
}

// TestSmuggling: Envoy and the application take the same bytes for the same requests, so that no denied one passes inside another.
func TestSmuggling(t *testing.T) {
	b := enter(t)
	gaps := readGaps(t)
	b.enforce(t, "", denyPaths("/a", "/a/*"))
	var list []attack
	for what, raw := range smuggled() {
		list = append(list, attack{what, send(raw), refused}, attack{what + " over mutual TLS", send(raw).as("cli", "istio-http/1.1"), refused})
	}
	answers := make([][]outcome, len(list))
	together(len(list), func(i int) { answers[i] = b.all(t.Context(), list[i].hit) })
	for i, a := range list {
		for _, o := range answers[i] {
			var wrong []string
			if o.reached() && o.seen.path() == "/a" {
				wrong = append(wrong, "the application sees the denied request")
			}
			verdict(t, gaps, t.Name()+"/"+a.what, wrong, o)
		}
	}
}

// TestDowngrade: requests of HTTP/2 to an application that speaks HTTP/1.1, which has other ideas of white space and line ends.
func TestDowngrade(t *testing.T) {
	b := enter(t)
	b.play(t,
		scene{name: "headers", policies: []policy{denyHeader("x-role", "admin"), denyHeader("x-pre", "adm*"), denyHeader("x-suf", "*min")}, attacks: oddValues()},
		scene{name: "notValues", policies: []policy{authorize("ALLOW", when(isNot("request.headers[x-role]", "admin")))}, attacks: notAdmin()},
		scene{name: "requests", policies: []policy{authorize("DENY", to(object{"methods": []string{"POST"}, "paths": []string{"/a", "/a/*"}}))}, attacks: oddRequests2(), forbidden: func(s *seen) bool {
			return s.path() == "/a" || len(s.values("x")) > 0
		}},
	)
}

func over1(h hit) hit { return h.at(httpPort).over2().silent() }

func oddValues() (list []attack) {
	for _, f := range []field{
		{"x-role", "admin"}, {"x-role", "admin "}, {"x-role", " admin"}, {"x-role", "admin\t"}, {"x-role", "\tadmin"}, {"x-pre", " adm1"}, {"x-suf", "min "}, {"x-suf", "min\t"}, {"x-role", "admin\r"},
		{"x-role", "admin\n"}, {"x-role", "x\r\nx-role: admin"}, {"x-role", "admin\x00"}, {"X-Role", "admin"}, {"x-role:", "admin"}, {"x-role ", "admin"}, {" x-role", "admin"},
	} {
		list = append(list, attack{fmt.Sprintf("HTTP/2 %q: %q", f.Name, f.Value), over1(get2("/").with(f.Name, f.Value)), refused})
		if !strings.ContainsAny(f.Value, "\r\n\x00") && !strings.ContainsAny(f.Name, ": ") {
			list = append(list, attack{fmt.Sprintf("HTTP/1.1 %q: %q", f.Name, f.Value), get("/").with(f.Name, f.Value), refused})
		}
	}
	for _, value := range []string{"admin\x0b", "admin\x0c", "admin\xa0", "admin\x85"} { // no white space of HTTP
		list = append(list, attack{fmt.Sprintf("HTTP/2 %q", value), over1(get2("/").with("x-role", value)), either})
	}
	return list
}

func notAdmin() []attack {
	list := []attack{{"another", over1(get2("/").with("x-role", "user")), reached}}
	for _, value := range []string{"admin", "admin ", " admin"} {
		list = append(list, attack{fmt.Sprintf("%q", value), over1(get2("/").with("x-role", value)), refused})
	}
	return list
}

func oddRequests2() (list []attack) {
	for m, w := range map[string]want{
		"POST": refused, "GET / HTTP/1.1\r\nX: ": refused, "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST": refused, "CONNECT": refused,
	} {
		list = append(list, attack{fmt.Sprintf("method %q", m), over1(get2("/a").by(m)), w})
	}
	for _, p := range []string{"/b HTTP/1.1\r\nX: y", "/b\r\n", "/b a", "b", "", "*", "http://x/a", "//x/a", "/b\tHTTP/1.1"} {
		list = append(list, attack{fmt.Sprintf("path %q", p), over1(get2(p).by("POST")), either})
	}
	for _, h := range [][]string{
		{"transfer-encoding", "chunked"}, {"te", "trailers"}, {"te", "gzip"}, {"connection", "close"}, {"content-length", "5"}, {"content-length", "0", "content-length", "5"},
		{"upgrade", "websocket"}, {"keep-alive", "1"}, {"proxy-connection", "x"}, {"expect", "100-continue"},
	} {
		list = append(list, attack{fmt.Sprintf("header %q", h), over1(get2("/b").by("POST").with(h...)), either})
	}
	short := over1(get2("/b").posts("abc"+denied)).with("content-length", "3")
	return append(list, attack{"a length shorter than the body", short, refused})
}
