package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// headerPolicies deny by headers as users write them.
func headerPolicies() []policy {
	return []policy{authorize("DENY",
		when(is("request.headers[x-role]", "admin"), is("request.headers[user-agent]", "evil*")), when(is("request.headers[x-key]", "bad*")), when(is("request.headers[content-type]", "text/evil")),
		when(is("request.headers[referer]", "*evil")), when(is("request.headers[cookie]", "a=evil")), when(is("request.headers[x-e]", "*")))}
}

// TestHeaders: headers that are denied, or demanded, in capitals, twice, folded, with blanks, and named by Connection.
func TestHeaders(t *testing.T) {
	b := enter(t)
	demanded := authorize("ALLOW", when(is("request.headers[x-role]", "admin"), isNot("request.headers[x-key]", "bad*")))
	b.play(t,
		scene{name: "DENY", policies: headerPolicies(), attacks: join(deniedHeaders(), undeniedHeaders()), forbidden: seesDenied},
		scene{name: "ALLOW", policies: []policy{demanded}, attacks: demandedHeaders()},
	)
}

// seesDenied reports whether the application saw a header that is denied.
func seesDenied(s *seen) bool {
	for _, v := range s.values("x-key") {
		if strings.HasPrefix(v, "bad") {
			return true
		}
	}
	return slices.Contains(s.values("x-role"), "admin") && strings.HasPrefix(strings.Join(s.values("user-agent"), ""), "evil")
}

// pairs are attacks over HTTP/1.1 and, if HTTP/2 has such headers, over HTTP/2.
func pairs(what string, w want, headers ...string) []attack {
	list := []attack{{"HTTP/1.1 " + what, get("/").with(headers...), w}}
	lower := make([]string, len(headers))
	for i, h := range headers {
		lower[i] = h
		if i%2 == 0 {
			lower[i] = strings.ToLower(h)
			if lower[i] == "connection" || strings.TrimSpace(h) != h {
				return list
			}
		}
	}
	return append(list, attack{"HTTP/2 " + what, get2("/").with(lower...).silent(), w})
}

func deniedHeaders() []attack {
	fold := get("/").with("x-key", "ok\r\n badly").silent()
	zero := get("/").with("x-key", "bad\x00").silent()
	return join(
		pairs("two conditions", refused, "x-role", "admin", "user-agent", "evil"), pairs("names in capitals", refused, "X-ROLE", "admin", "User-AGENT", "evil1"),
		pairs("twice, first", refused, "x-role", "admin", "x-role", "user", "user-agent", "evil"), pairs("twice, last", refused, "x-role", "user", "x-role", "admin", "user-agent", "evil"),
		pairs("a known header twice, last", refused, "x-role", "admin", "user-agent", "good", "user-agent", "evil"),
		pairs("a known header twice, first", refused, "x-role", "admin", "user-agent", "evil", "user-agent", "good"),
		pairs("the start of a value", refused, "x-key", "badly"), pairs("the start of a second value", refused, "x-key", "ok", "x-key", "badly"),
		pairs("behind an empty value", refused, "x-key", "", "x-key", "badly"), pairs("a known header", refused, "content-type", "text/evil"),
		pairs("content-type twice, last", refused, "content-type", "a", "content-type", "text/evil"), pairs("content-type twice, first", refused, "content-type", "text/evil", "content-type", "a"),
		pairs("referer that is no URL, which Envoy removes", either, "referer", "x evil"), pairs("referer twice", refused, "referer", "evil", "referer", "good"), pairs("cookie", refused, "cookie", "a=evil"),
		pairs("cookie twice, last", refused, "cookie", "b=1", "cookie", "a=evil")[:1], pairs("cookie twice, first", refused, "cookie", "a=evil", "cookie", "b=1")[:1], // HTTP/2 has one cookie in several fields
		pairs("present", refused, "x-e", "1"),
		pairs("a blank behind the name", refused, "x-key ", "badly"), pairs("named by Connection", either, "x-key", "badly", "Connection", "x-key"),
		pairs("named by Connection beside another", either, "x-role", "admin", "user-agent", "evil", "Connection", "close, x-role"),
		[]attack{
			{"blanks around the value", get("/").with("x-role", "  admin \t", "user-agent", "evil"), refused}, {"a folded line", fold, either}, {"a zero byte", zero, refused},
		})
}

func undeniedHeaders() []attack {
	chunked := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-key\r\n\r\n1\r\na\r\n0\r\nx-key: bad\r\n\r\n"
	return join(
		pairs("another case of the value", either, "x-role", "ADMIN", "user-agent", "evil"), pairs("a list", either, "x-role", "user,admin", "user-agent", "evil"),
		pairs("an underscore", either, "x_role", "admin", "user-agent", "evil"), pairs("present and empty", either, "x-e", ""),
		[]attack{
			{"a trailer over HTTP/2", get2("/").posts("x", "x-key", "bad").silent(), either}, {"a trailer over HTTP/1.1", send(chunked), either},
			{"a tab before the name", get("/").with("\tx-key", "badly").silent(), refused},
		})
}

func demandedHeaders() []attack {
	with := func(headers ...string) hit { return get("/").with(headers...) }
	return []attack{
		{"there", with("x-role", "admin"), reached}, {"not there", get("/"), refused}, {"a list", with("x-role", "admin,user"), refused}, {"twice", with("x-role", "admin", "x-role", "user"), either},
		{"beside a bad one", with("x-role", "admin", "x-key", "bad"), refused}, {"beside a bad second one", with("x-role", "admin", "x-key", "a", "x-key", "bad"), refused},
		{"beside a bad first one", with("x-role", "admin", "x-key", "bad", "x-key", "a"), refused}, {"beside an empty one", with("x-role", "admin", "x-key", ""), either},
		{"beside a bad one that Connection names", with("x-role", "admin", "x-key", "bad", "connection", "x-key"), either},
		{"there, and named by Connection", with("x-role", "admin", "connection", "x-role"), either},
	}
}

// joined are headers whose lines Envoy or an application may join.
func joined() []string {
	return strings.Fields(`accept accept-encoding accept-language authorization cache-control content-encoding content-type cookie origin referer user-agent x-forwarded-for
x-forwarded-host x-forwarded-proto x-forwarded-port x-request-id via forwarded x-real-ip x-api-key access-control-request-method access-control-request-headers if-match range
upgrade-insecure-requests sec-fetch-site dnt from x-envoy-original-path grpc-timeout grpc-encoding grpc-accept-encoding traceparent x-b3-traceid baggage x-amz-date expect
pragma date server x-ot-span-context max-forwards proxy-authorization`)
}

// TestJoinedHeaders: a denied value in one of two lines of each header that users may name.
func TestJoinedHeaders(t *testing.T) {
	b := enter(t)
	var rules []object
	var list []attack
	for _, name := range joined() {
		rules = append(rules, when(is("request.headers["+name+"]", "evil")))
		good, w := "good", refused
		switch name {
		case "expect":
			good = "100-continue"
		case "referer", "x-forwarded-for": // a value that is none of this header goes before policies see it
			w = either
		}
		list = append(list, attack{name + " alone", get("/").with(name, "evil"), w}, attack{name + " last", get("/").with(name, good, name, "evil"), refused},
			attack{name + " first", get("/").with(name, "evil", name, good), refused})
	}
	allowed := authorize("ALLOW", when(isNot("request.headers[user-agent]", "evil*"), isNot("request.headers[content-type]", "*evil")))
	b.play(t,
		scene{name: "DENY", policies: []policy{authorize("DENY", rules...)}, attacks: list},
		scene{name: "ALLOW all but", policies: []policy{allowed}, attacks: []attack{
			{"user-agent", get("/").with("user-agent", "good", "user-agent", "evil"), refused}, {"content-type", get("/").with("content-type", "evil", "content-type", "good"), refused},
			{"neither", get("/").with("user-agent", "good"), reached},
		}},
	)
}

// TestOwnHeaders: headers that only Envoy may set, from outside.
func TestOwnHeaders(t *testing.T) {
	b := enter(t)
	var list []attack
	for name, value := range map[string]string{
		"x-envoy-original-path": "/admin", "x-envoy-external-address": "1.1.1.1", "x-envoy-decorator-operation": "x", "x-envoy-peer-metadata": "x", "x-envoy-internal": "true",
		"x-envoy-original-dst-host": "127.0.0.1:15000", "x-envoy-upstream-alt-stat-name": "x", "x-envoy-fault-abort-request": "503",
		"x-forwarded-client-cert": "By=x;URI=" + admin, "x-envoy-attempt-count": "9", "x-envoy-force-trace": "1", "x-envoy-hedge-on-per-try-timeout": "true",
	} {
		for _, port := range []int{httpPort, unnamedPort} {
			for _, cert := range []string{"", "cli"} {
				list = append(list, attack{fmt.Sprintf("%s to port %d as %q", name, port, cert), get("/").at(port).with(name, value).as(cert).silent(), either})
			}
		}
	}
	b.play(t, scene{name: "no policies", attacks: list, forbidden: func(s *seen) bool {
		elements := strings.Split(strings.Join(s.values("x-forwarded-client-cert"), ","), ",")
		return strings.Contains(elements[len(elements)-1], admin) // the last one is Envoy's own
	}})
}
