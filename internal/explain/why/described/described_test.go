package described

import (
	"slices"
	"strings"
	"testing"
)

// FuzzDescribed checks that whatever a description says, it is refused or becomes a request that a client could send; and that it says
// the same after it went over a URL.
func FuzzDescribed(f *testing.F) {
	f.Add("shop/web", "reviews.shop:9080", "GET", "/a?b", "", "x-a: 1", `{"iss":"a"}`, "10.0.0.1")
	f.Add("", "[fd00::1]:80", "", "", "h", "=", "null", "")
	f.Add("a/b", "r:0", "G T", "a", "\n", "host=a", "{}", "fd00::1%eth0")
	f.Fuzz(func(t *testing.T, from, to, method, path, host, header, claims, address string) {
		d := Request{From: from, To: to, Method: method, Path: path, Host: host, Headers: []string{header}, Claims: claims, Address: address}
		if again, err := RequestBy(d.Query()); err != nil || again.To != d.To || again.Claims != d.Claims || !slices.Equal(again.Headers, d.Headers) {
			t.Fatalf("%+v became %+v (%v)", d, again, err)
		}
		p, err := d.Parse()
		if err != nil {
			return
		}
		r := p.Sent
		for _, text := range []string{r.Method, r.Path, r.Host, r.Headers[0].Name} {
			if text == "" || strings.ContainsAny(text, " \r\n\x00") {
				t.Errorf("%+v became %+v", d, r)
			}
		}
		if strings.ContainsAny(r.Headers[0].Value, "\r\n\x00") || r.Path[0] != '/' || p.Target.Port == 0 || p.Target.Host == "" {
			t.Errorf("%+v became %+v", d, r)
		}
		if claims != "" && p.Token["iss"] == nil {
			t.Errorf("the claims %q have no issuer", claims)
		}
	})
}
