package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestSessions: requests with the header of a session reach the endpoint that answered its first request. Once that endpoint drains, it still gets the
// requests of its sessions, and the other endpoint gets all others.
func TestSessions(t *testing.T) {
	t.Setenv("PILOT_ENABLE_PERSISTENT_SESSION_FILTER", "true")
	s := newService(t, "shop", backend(t, "v1"), backend(t, "v2"))
	labelled := strings.Replace(s.entry(), "namespace: shop}", "namespace: shop, labels: {istio.io/persistent-session-header: x-session}}", 1)
	b := newBed(t, "services.yaml", labelled)
	b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	b.answers(s, "v1", "/")
	b.answers(s, "v2", "/")

	name, session := b.inSession(s, "")
	if session == "" {
		t.Fatal("the answer to the first request has no session")
	}
	for range 20 {
		if got, _ := b.inSession(s, session); got != name {
			t.Fatalf("a request of the session is answered by %s, want %s", got, name)
		}
	}
	other := "v1"
	if name == "v1" {
		other = "v2"
	}
	b.write("services.yaml", strings.Replace(labelled, "labels: {version: "+name+"}", `labels: {version: `+name+`, istio.io/draining: "true"}`, 1))
	b.await("requests without a session to leave "+name, func(context.Context) error {
		for range 20 {
			if got, _ := b.inSession(s, ""); got != other {
				return fmt.Errorf("answered by %s", got)
			}
		}
		return nil
	})
	for range 20 {
		if got, _ := b.inSession(s, session); got != name {
			t.Fatalf("while %s drains, a request of its session is answered by %s", name, got)
		}
	}
}

// inSession sends a request of a session, none if it is empty, and returns the backend that answers and the session of the answer.
func (b *bed) inSession(s service, session string) (name, next string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+testbed.Loopback(s.port)+"/", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Host = s.host()
	if session != "" {
		r.Header.Set("x-session", session)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	var report struct{ Name string }
	if err := json.NewDecoder(answer.Body).Decode(&report); err != nil || answer.StatusCode != http.StatusOK {
		b.Fatalf("status %d, %v", answer.StatusCode, err)
	}
	return report.Name, answer.Header.Get("x-session")
}
