package gate_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pilotmesh/pilot/test/podrunner/gate"
)

func TestGate(t *testing.T) {
	more := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begin")
		if r.URL.Path == "/watch" {
			w.(http.Flusher).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	g := gate.New()
	client := &http.Client{Transport: g.Wrap(http.DefaultTransport)}
	get := func() error {
		response, err := client.Get(server.URL)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		return err
	}
	if err := get(); err != nil {
		t.Errorf("through an open gate: %v", err)
	}
	watching, err := client.Get(server.URL + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Body.Close()
	g.Shut()
	if text, err := io.ReadAll(watching.Body); err == nil {
		t.Errorf("a watch survives a shut gate, and reads %q", text)
	}
	if err := get(); !errors.Is(err, gate.ErrShut) {
		t.Errorf("through a shut gate: %v", err)
	}
	g.Open()
	if err := get(); err != nil || g.IsShut() {
		t.Errorf("through a gate opened again: %v", err)
	}
}
