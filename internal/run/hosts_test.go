package run

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestOnlyHosts: names that others can point to this host are refused, in every form.
func TestOnlyHosts(t *testing.T) {
	h := OnlyHosts([]string{"istiod.istio-system.svc", "Node-1"}, "name it in HOSTS", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "127.0.0.1": 200, "[::1]:8080": 200, "[::1]": 200, "10.1.2.3:15014": 200, "[fe80::1%25eth0]:80": 200,
		"localhost": 200, "localhost:8080": 200, "LocalHost.:8080": 200, "app.localhost": 200,
		"istiod.istio-system.svc:15014": 200, "ISTIOD.istio-system.svc.": 200, "node-1": 200, "": 200,
		"rebind.example": 421, "rebind.example:8080": 421, "istiod.istio-system.svc.evil.example": 421, "evil-istiod.istio-system.svc": 421,
		"127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "notlocalhost": 421, "2130706433": 421, "0x7f.1": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || want == 421 && !strings.Contains(w.Body.String(), "HOSTS") {
			t.Errorf("Host %q: %d %s", host, w.Code, w.Body)
		}
	}
}
