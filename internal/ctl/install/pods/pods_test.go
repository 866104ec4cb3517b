package pods

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestForwardRefused: a pod that does not exist, a missing permission and a server that is not there are errors, and nothing waits.
func TestForwardRefused(t *testing.T) {
	for status, want := range map[int]string{http.StatusForbidden: "forbidden", http.StatusNotFound: "not found"} {
		var asked string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.Path
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "this is ` + want + `"}`))
		}))
		local, end, err := Forward(t.Context(), &rest.Config{Host: server.URL}, "shop", "web-1", 15000)
		server.Close()
		if err == nil || !strings.Contains(err.Error(), want) || local != "" || end != nil || asked != "POST /api/v1/namespaces/shop/pods/web-1/portforward" {
			t.Errorf("%q after %s; %v, want %q", local, asked, err, want)
		}
	}
	if _, _, err := Forward(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, "shop", "web-1", 15000); err == nil {
		t.Error("no error without a server")
	}
}

// TestList: a pod is described without the variables of its containers, and its log is asked for with limits.
func TestList(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/log") {
			_, _ = w.Write([]byte("a line"))
			return
		}
		_, _ = w.Write([]byte(`{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": "web-1", "namespace": "shop"},
			"spec": {"nodeName": "n1", "containers": [{"name": "web", "image": "web:1", "env": [{"name": "KEY", "value": "do-not-show"}]}]}}]}`))
	}))
	t.Cleanup(server.Close)
	c, err := Connect(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.List(t.Context(), "shop")
	if err != nil || len(list) != 1 || list[0].Name != "web-1" || strings.Join(list[0].Containers, " ") != "web" {
		t.Fatalf("%+v, %v", list, err)
	}
	if state := string(list[0].State); strings.Contains(state, "do-not-show") || !strings.Contains(state, `"node":"n1"`) || !strings.Contains(state, "web:1") {
		t.Errorf("the state is %s", state)
	}
	if !strings.Contains(asked, "limit=20") {
		t.Errorf("the list has no limit: %s", asked)
	}
	log, err := c.Log(t.Context(), "shop", "web-1", "web", time.Hour)
	if err != nil || string(log) != "a line" {
		t.Errorf("%q, %v", log, err)
	}
	for _, want := range []string{"container=web", "limitBytes=4194304", "sinceSeconds=3600", "tailLines=5000"} {
		if !strings.Contains(asked, want) {
			t.Errorf("the log is asked for by %s, without %s", asked, want)
		}
	}
}
