package kubesource

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
)

// forgetful is a proxy before the API server that can make it forget all services, as an API server does whose storage was
// restored from nothing.
type forgetful struct {
	*httptest.Server
	forgets atomic.Bool
}

func (p *place) forgetful() *forgetful {
	p.Helper()
	config := p.account()
	transport, err := rest.TransportFor(config)
	p.must(err)
	to, err := url.Parse(config.Host)
	p.must(err)
	f := &forgetful{}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if strings.HasSuffix(r.URL.Path, "/services") && f.forgets.Load() {
			if q.Get("watch") == "true" && q.Get("sendInitialEvents") == "" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusGone)
				fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}`)
				return
			}
			q.Set("labelSelector", "pilot.test/none")
			r.URL.RawQuery = q.Encode()
		}
		proxy.ServeHTTP(w, r)
	}))
	p.Cleanup(f.Close)
	return f
}

// TestDoubtfulList checks that services missing in one list stay, and go when they are missing in a second list, too.
func TestDoubtfulList(t *testing.T) {
	p := on(t)
	var services []api.Key
	for _, name := range []string{"a", "b", "c"} {
		p.apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {ports: [{port: 80}]}}", name))
		services = append(services, p.registry("Service", name))
	}
	f := p.forgetful()
	s := p.start(kubesource.Options{Config: &rest.Config{Host: f.URL}})
	f.forgets.Store(true)
	f.CloseClientConnections()
	s.until("the list is doubted", s.problem("the last list of services does not have"))
	f.forgets.Store(false)
	s.until("the next list is complete", not(s.problem("does not have")))
	for _, k := range services {
		if s.events(k) != 1 {
			t.Errorf("%v has %d events", k, s.events(k))
		}
	}
	f.forgets.Store(true)
	f.CloseClientConnections()
	s.until("the list is doubted again", s.problem("the last list of services does not have"))
	began := time.Now()
	s.until("the second list is believed", func() bool { return s.lacks(services[0])() && s.lacks(services[2])() && !s.problem("does not have")() })
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("believed after %v", took)
	}
}
