package fetch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestBody(t *testing.T) {
	const limit = 10
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/most":
			fmt.Fprint(w, strings.Repeat("a", limit))
		case "/more":
			fmt.Fprint(w, strings.Repeat("a", limit+1))
		case "/cut":
			w.Header().Set("Content-Length", "5")
			fmt.Fprint(w, "a")
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer s.Close()
	for path, want := range map[string]string{
		"/most": "aaaaaaaaaa", "/more": "more than 10 bytes", "/cut": "unexpected EOF", "/other": "status 418",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		body, err := Body(s.Client(), request, limit)
		if got := string(body); err != nil {
			if !strings.Contains(err.Error(), want) || got != "" {
				t.Errorf("%s: body %q, error %v", path, got, err)
			}
		} else if got != want {
			t.Errorf("%s: body %q, want %q", path, got, want)
		}
	}
}
