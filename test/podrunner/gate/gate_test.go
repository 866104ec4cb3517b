package gate_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/podrunner/gate"
)

func TestGate(t *testing.T) {
	more := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
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
	get := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		return err
	}
	if err := get(t.Context()); err != nil {
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
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := get(impatient); !errors.Is(err, gate.ErrShut) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("through a shut gate: %v", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- get(t.Context()) }()
	g.Open()
	if err := <-waiting; err != nil || g.IsShut() {
		t.Errorf("through a gate opened again: %v", err)
	}
}
