package attack

import (
	"fmt"
	"slices"
	"testing"
)

// TestHosts: hosts that are denied, or are all that is allowed.
func TestHosts(t *testing.T) {
	b := enter(t)
	b.play(t,
		scene{name: "DENY", policies: []policy{authorize("DENY", to(object{"hosts": []string{"admin.shop", "admin.shop:*"}}))}, attacks: join(deniedHosts(), oddRequests(), hosts2()), forbidden: func(s *seen) bool {
			return slices.Contains(append(s.values("host"), s.values(":authority")...), "admin.shop")
		}},
		scene{name: "ALLOW", policies: []policy{authorize("ALLOW", to(object{"hosts": []string{"public.shop"}}))}, attacks: allowedHosts()},
		scene{name: "ALLOW all but", policies: []policy{authorize("ALLOW", to(object{"notHosts": []string{"admin.shop", "*.admin.shop", "admin.*"}}))}, attacks: otherHosts()},
	)
}

func deniedHosts() (list []attack) {
	for _, h := range []string{
		"admin.shop", "ADMIN.shop", "admin.shop:8080", "admin.shop:", "admin.shop.", "admin.shop.:80", " admin.shop", "admin.shop ", "\tadmin.shop\t", "u@admin.shop", "u:p@admin.shop",
		"x,admin.shop", "admin.shop,x", "admin.shop, x", "admin.shop:8080:1", "admin.shop:08080",
	} {
		list = append(list, attack{fmt.Sprintf("Host %q", h), get("/").to(h), refused}, attack{fmt.Sprintf(":authority %q", h), get2("/").to(h).silent(), refused})
	}
	for _, h := range []string{
		"admin.shop@x", "x ,admin.shop", "admin.shop ,x", "x;admin.shop", "admin.shop/x", "admin.shop?x", "admin.shop#x", "admin%2eshop", "[::1]", "admin.shop\x00",
		`admin.shop\x`, "admin\u017fhop", "x\tadmin.shop",
	} {
		list = append(list, attack{fmt.Sprintf("Host %q", h), get("/").to(h), either}, attack{fmt.Sprintf(":authority %q", h), get2("/").to(h).silent(), either})
	}
	return append(list, attack{"X-Forwarded-Host", get("/").with("X-Forwarded-Host", "admin.shop"), reached})
}

// request1 is a request of HTTP/1.1 line by line.
func request1(lines ...string) hit {
	text := ""
	for _, l := range lines {
		text += l + "\r\n"
	}
	return send(text + "\r\n")
}

func oddRequests() []attack {
	return []attack{
		{"two hosts, the denied one last", request1("GET / HTTP/1.1", "Host: x", "Host: admin.shop"), refused},
		{"two hosts, the denied one first", request1("GET / HTTP/1.1", "Host: admin.shop", "Host: x"), refused},
		{"no host", request1("GET / HTTP/1.1"), refused},
		{"a URL with the denied host", request1("GET http://admin.shop/ HTTP/1.1", "Host: x"), refused},
		{"a URL with the denied host and user information", request1("GET http://u@admin.shop/ HTTP/1.1", "Host: x"), refused},
		{"a URL with the denied host and a dot", request1("GET http://admin.shop./ HTTP/1.1", "Host: x"), refused},
		{"a folded line", request1("GET / HTTP/1.1", "Host: x", " admin.shop"), refused},
		{"a tab before the colon", request1("GET / HTTP/1.1", "Host\t: admin.shop", "Host: x"), refused},
		{"a blank before the colon", request1("GET / HTTP/1.1", "Host : admin.shop", "Host: x"), refused},
	}
}

// begun2 is a request of HTTP/2 by its pseudo headers.
func begun2(pairs ...string) hit { return get2("/").begins(pairs...) }

func hosts2() []attack {
	return []attack{
		{":authority and the denied host", get2("/").to("x").with("host", "admin.shop").silent(), either}, // the application sees one of them
		{"host without :authority", begun2(":method", "GET", ":scheme", "http", ":path", "/", "host", "admin.shop"), refused},
		{"two :authority", begun2(":method", "GET", ":scheme", "http", ":authority", "x", ":authority", "admin.shop", ":path", "/"), refused},
		{"host beside an empty :authority", get2("/").to("").with("host", "admin.shop").silent(), refused},
	}
}

func allowedHosts() []attack {
	list := []attack{
		{"the host", get("/").to("public.shop"), reached}, {"in capitals", get("/").to("PUBLIC.SHOP"), reached},
		{"two lines", request1("GET / HTTP/1.1", "Host: public.shop", "Host: admin.shop"), refused},
		{"another URL", request1("GET http://admin.shop/ HTTP/1.1", "Host: public.shop"), refused},
	}
	for _, h := range []string{"public.shop:80", "public.shop,admin.shop", "admin.shop,public.shop", "x"} {
		list = append(list, attack{fmt.Sprintf("Host %q", h), get("/").to(h), refused})
	}
	return append(list, attack{"a dot", get("/").to("public.shop."), either})
}

func otherHosts() []attack {
	list := []attack{{"another host", get("/").to("x"), reached}, {"two lines", request1("GET / HTTP/1.1", "Host: x", "Host: admin.shop"), refused}}
	for _, h := range []string{"admin.shop", "a.admin.shop", "x,admin.shop", "admin.shop,x", "x,a.admin.shop", "x, ADMIN.shop", "x , admin.shop", "x\t,admin.shop", "x,\tadmin.shop", "x,  admin.shop"} {
		list = append(list, attack{fmt.Sprintf("Host %q", h), get("/").to(h), refused})
	}
	return list
}

// TestMethods: methods that are denied, by every spelling.
func TestMethods(t *testing.T) {
	b := enter(t)
	var list []attack
	for m, w := range map[string]want{
		"GET": reached, "POST": refused, "DELETE": refused, "post": either, "Post": either, "POST ": refused, "PO\x00ST": either, "POSTX": either, "CONNECT": either, "OPTIONS": either,
		"TRACE": either, "PRI": either, "X-POST": either, "\tPOST": refused, "GET,POST": either, "QUERY": either, "PATCH": either,
	} {
		h := get("/").by(m)
		h.unasked = m == "CONNECT" // can-i says that it does not know
		list = append(list, attack{fmt.Sprintf("HTTP/1.1 %q", m), h, w}, attack{fmt.Sprintf("HTTP/2 %q", m), get2("/").by(m).silent(), w})
	}
	for _, h := range []string{"X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"} {
		list = append(list, attack{h, get("/").with(h, "DELETE"), reached})
	}
	list = append(list,
		attack{"two :method", begun2(":method", "GET", ":method", "POST", ":scheme", "http", ":authority", "x", ":path", "/"), refused},
		attack{"CONNECT over HTTP/2", begun2(":method", "CONNECT", ":authority", "x:80"), refused})
	b.play(t, scene{name: "DENY", policies: []policy{authorize("DENY", to(object{"methods": []string{"POST", "DELETE"}}))}, attacks: list, forbidden: func(s *seen) bool {
		return s.method() == "POST" || s.method() == "DELETE"
	}})
}

func (s *seen) method() string {
	var method string
	_, _ = fmt.Sscan(s.Line, &method)
	return method
}

// TestForms: other forms of requests, and upgrades, where only GET /x is allowed.
func TestForms(t *testing.T) {
	b := enter(t)
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"}
	h2c := []string{"Host: a", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"}
	forms := map[string]hit{
		"CONNECT with an authority": request1("CONNECT web:8080 HTTP/1.1", "Host: web:8080"), "CONNECT with a path": request1("CONNECT /x HTTP/1.1", "Host: a"),
		"OPTIONS *": request1("OPTIONS * HTTP/1.1", "Host: a"), "GET *": request1("GET * HTTP/1.1", "Host: a"), "HTTP/0.9": request1("GET /admin"),
		"HTTP/0.9 to what is allowed": request1("GET /x"), "HTTP/1.0": request1("GET /admin HTTP/1.0"), "HTTP/1.2": request1("GET /admin HTTP/1.2", "Host: a"),
		"HTTP/2.0": request1("GET /admin HTTP/2.0", "Host: a"), "HTTP/9.9": request1("GET /admin HTTP/9.9", "Host: a"), "http/1.1": request1("GET /admin http/1.1", "Host: a"),
		"line feeds alone": send("GET /admin HTTP/1.1\nHost: a\n\n"), "two blanks": request1("GET  /admin HTTP/1.1", "Host: a"),
		"a blank in the path": request1("GET /x /admin HTTP/1.1", "Host: a"), "tabs": request1("GET\t/admin\tHTTP/1.1", "Host: a"),
		"empty lines first": send("\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n"), "WebSocket": request1(append([]string{"GET /admin HTTP/1.1", "Host: a"}, upgrade...)...),
		"WebSocket by POST": request1(append([]string{"POST /x HTTP/1.1", "Host: a"}, upgrade...)...), "h2c": request1(append([]string{"GET /admin HTTP/1.1"}, h2c...)...),
	}
	var list []attack
	for what, h := range forms {
		for _, port := range []int{httpPort, anyPort, unnamedPort} {
			list = append(list, attack{fmt.Sprintf("%s at port %d", what, port), h.at(port), refused})
		}
	}
	tunnel := request1(append([]string{"GET /x HTTP/1.1", "Host: a"}, upgrade...)...)
	list = append(list, attack{"WebSocket that is allowed", tunnel, reached})
	b.play(t, scene{name: "ALLOW GET /x", policies: []policy{authorize("ALLOW", to(object{"methods": []string{"GET"}, "paths": []string{"/x", "/x/*"}}))}, attacks: list})
	tunnel.raw += "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
	if answers := b.all(t.Context(), tunnel); len(answers) == 0 || answers[0].status != 101 {
		t.Errorf("no tunnel: %v", answers)
	}
}
