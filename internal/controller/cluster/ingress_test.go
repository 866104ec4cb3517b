package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestWriteLoadBalancer: addresses become the status of an Ingress, as IP addresses or names. A status that has them, in any order, is not
// written again, nor one that has changed since it was read.
func TestWriteLoadBalancer(t *testing.T) {
	const path = "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/i"
	status, answer := `{}`, http.StatusOK
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+strings.TrimPrefix(r.URL.Path, path))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !strings.HasPrefix(r.URL.Path, path):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		case r.Method == http.MethodPut && answer != http.StatusOK:
			w.WriteHeader(answer)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
		case r.Method == http.MethodPut:
			var o struct{ Status json.RawMessage }
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				t.Error(err)
			}
			status = string(o.Status)
			fallthrough
		default:
			_, _ = io.WriteString(w, `{"kind":"Ingress","apiVersion":"networking.k8s.io/v1","metadata":{"name":"i","namespace":"shop"},"status":`+status+`}`)
		}
	}))
	defer server.Close()
	s, err := NewStatuses(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, object string
		addresses    []string
		answer       int
		written      bool
		status       string
		requests     []string
	}{
		{"addresses", "i", []string{"lb.exam.com", "192.0.2.1"}, http.StatusOK, true, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"lb.exam.com"}]}}`, []string{"GET ", "PUT /status"}},
		{"the same again", "i", []string{"192.0.2.1", "lb.exam.com"}, http.StatusOK, true, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"lb.exam.com"}]}}`, []string{"GET "}},
		{"a conflict", "i", []string{"2001:db8::1"}, http.StatusConflict, false, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"lb.exam.com"}]}}`, []string{"GET ", "PUT /status"}},
		{"none", "i", nil, http.StatusOK, true, `{"loadBalancer":{}}`, []string{"GET ", "PUT /status"}},
		{"an object that is gone", "gone", []string{"192.0.2.1"}, http.StatusOK, false, `{"loadBalancer":{}}`, nil},
	} {
		requests, answer = nil, c.answer
		k := api.Key{Kind: "Ingress", Namespace: "shop", Name: c.object}
		written, err := s.WriteLoadBalancer(t.Context(), k, c.addresses)
		if err != nil || written != c.written || status != c.status || c.requests != nil && !slices.Equal(requests, c.requests) {
			t.Errorf("%s: written %t, error %v, status %s, requests %q", c.name, written, err, status, requests)
		}
	}
}
