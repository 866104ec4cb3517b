package attack

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
)

// spellings are ways to write /admin, and what only looks like one.
func spellings() []string {
	list := strings.Fields(`/admin /admin/ //admin /./admin /x/../admin /%61dmin /%2561dmin /admin%00 /admin%20 /admin. /admin;x=1 /;x/admin /.;/admin /..;/admin
/x/..;/admin /admin?x /admin?/../x /admin#x /admin#/../x /x#/admin /x?#/admin /admin?a#b /x/../admin#y /x#/../admin /ADMIN /Admin/ /admin%2f /admin%2Fx
/x%2f..%2fadmin /x/..%2fadmin /%2fadmin /%2e%2fadmin /\admin /x\..\admin /x/..\admin /%5cadmin /x/..%5cadmin /x/%2e%2e/admin /x/%2E%2e/admin /x/.%2e/admin
/x/%252e%252e/admin /%c0%afadmin /x/%c0%ae%c0%ae/admin /x/%e0%80%ae./admin /%u0061dmin http://web.shop:8080/admin http://web.shop:8080//admin
http://other/admin HTTP://web/admin https://web/admin http:///admin ftp://x/admin http://x?/admin http://x/?/admin http://x#/admin http://u:p@web/admin
http://web\admin http://web/x/../admin http:/admin http:admin * admin ?/admin #/admin /admin%09 /admin%0a /admin%0d%0aX:y /.. /../admin /admin/. /admin/..
/admin/../admin /admin/%2e /admin// /%2e/admin /%2e%2e/admin /x//../admin /x/..//admin /x//..//admin //..//admin /x/.../admin /admin... /admin:80 /admin@x
/admin,x /admin|x /admin~ /admin%7e /admin%23 /admin%3f /admin%3fx /admin%3b /% /admin% /admin%2 /admin%zz /%61%64%6d%69%6e /%41dmin /a%64min/x /admin%2e
/admin/%2e%2e/admin`)
	return append(list, "", "/\xffadmin", "/admin\xff", "/admin/\xff", "/adm\xc4\xb1n", "/admin\t", "/admin\x0c", "\t/admin", "/admin\x7f", "/admin\x01", "/admin\x00",
		"/admin x", "/ admin", "/admin  ", "/admin/"+strings.Repeat("a", 50000), "/"+strings.Repeat("x/", 8000)+strings.Repeat("../", 8000)+"admin",
		"/"+strings.Repeat("x/../", 10000)+"admin", "/admin?"+strings.Repeat("a", 50000))
}

// spelt are attacks by each spelling over HTTP/1.1 and HTTP/2. What the application sees decides.
func spelt() (list []attack) {
	for _, s := range spellings() {
		name := fmt.Sprintf("%.60q", s)
		list = append(list, attack{"HTTP/1.1 " + name, get(s), either}, attack{"HTTP/2 " + name, get2(s).silent(), either},
			attack{"HTTP/2 to HTTP/1.1 " + name, get2(s).at(httpPort).silent(), either})
	}
	return list
}

// isAdmin is what every application takes for /admin.
var isAdmin = regexp.MustCompile(`^(https?://[^/]*)?/admin(/.*)?$`)

func seesAdmin(s *seen) bool { return isAdmin.MatchString(s.path()) }

// TestPaths: paths that are denied, or are all that is allowed, by every spelling, with every normalisation.
func TestPaths(t *testing.T) {
	b := enter(t)
	denied := []policy{denyPaths("/admin", "/admin/*")}
	merged := regexp.MustCompile(`^/+admin(/|$)`)
	decoded := regexp.MustCompile(`(?i)%2f|%5c|\\`)
	b.play(t,
		scene{name: "DENY", policies: denied, attacks: spelt(), forbidden: seesAdmin},
		scene{name: "DENY without normalisation", mesh: normalization("NONE"), policies: denied, attacks: spelt(), forbidden: seesAdmin},
		scene{name: "DENY with merged slashes", mesh: normalization("MERGE_SLASHES"), policies: denied, attacks: spelt(), forbidden: func(s *seen) bool {
			return seesAdmin(s) || merged.MatchString(s.path())
		}},
		scene{name: "DENY with decoded slashes", mesh: normalization("DECODE_AND_MERGE_SLASHES"), policies: denied, attacks: spelt(), forbidden: func(s *seen) bool {
			return seesAdmin(s) || merged.MatchString(s.path()) || decoded.MatchString(s.path())
		}},
		scene{name: "ALLOW /x", policies: []policy{allowPaths("/x", "/x/*")}, attacks: spelt(), forbidden: func(s *seen) bool {
			return s.path() != "/x" && !strings.HasPrefix(s.path(), "/x/") || strings.Contains(s.path(), "/../")
		}},
		scene{name: "ALLOW all but", policies: []policy{authorize("ALLOW", to(object{"notPaths": []string{"/admin", "/admin/*"}}))}, attacks: spelt(), forbidden: seesAdmin},
	)
	b.enforce(t, "") // the usual normalisation
}

func normalization(name string) string {
	return "pathNormalization: {normalization: " + name + "}\n"
}

// careless is what an application makes of a path that decodes twice, and heeds neither parameters nor case.
func careless(p string) string {
	for range 2 {
		if decoded, err := url.PathUnescape(p); err == nil {
			p = decoded
		}
	}
	p = regexp.MustCompile(`;[^/]*`).ReplaceAllString(strings.ReplaceAll(p, `\`, "/"), "")
	return strings.ToLower(path.Clean(p))
}

// TestCarelessApplications: an ALLOW by paths protects an application that decodes paths again. A DENY does not.
func TestCarelessApplications(t *testing.T) {
	b := enter(t)
	b.play(t, scene{name: "ALLOW /x", policies: []policy{allowPaths("/x")}, attacks: spelt(), forbidden: func(s *seen) bool {
		c := careless(s.path())
		return c == "/admin" || strings.HasPrefix(c, "/admin/")
	}})
}

// TestTemplates: patterns of paths and bytes beyond ASCII.
func TestTemplates(t *testing.T) {
	b := enter(t)
	policies := []policy{denyPaths("/a/{*}/priv", "/b/{**}", "/c/{**}/x", "*.secret")}
	for _, mesh := range []string{"", normalization("NONE")} {
		b.play(t, scene{name: "DENY " + mesh, policies: policies, mesh: mesh, attacks: templates()})
	}
	b.enforce(t, "")
}

func templates() (list []attack) {
	for _, p := range []string{
		"/a/1/priv", "/a/\xff/priv", "/a/\xc3\xa9/priv", "/a/\xed\xa0\x80/priv", "/a/\xf4\x90\x80\x80/priv", "/b/\xff", "/b/x\xfe\xff", "/c/\x80/x", "/a/%ff/priv", "/b/", "/c//x",
		"/a/;x/priv", "/x.secret?y", "/x\xff.secret", "/a/x|y/priv", "/a/{*}/priv", "/a/%0a/priv",
	} {
		list = append(list, attack{fmt.Sprintf("HTTP/1.1 %q", p), get(p), refused}, attack{fmt.Sprintf("HTTP/2 %q", p), get2(p).at(httpPort).silent(), refused})
	}
	for _, p := range []string{"/a//priv", "/a/1/2/priv", "/b", "/c/x", "/a/1/priv/", "/a/1%2f2/priv", "/a/\x7f/priv"} {
		list = append(list, attack{fmt.Sprintf("HTTP/1.1 %q", p), get(p), either}, attack{fmt.Sprintf("HTTP/2 %q", p), get2(p).at(httpPort).silent(), either})
	}
	return list
}
