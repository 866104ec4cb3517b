package registries

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// saying is a reader that calls its listener once, and waits for its end.
type saying func(Listener)

func (say saying) Run(ctx context.Context, to Listener) {
	say(to)
	<-ctx.Done()
}

// TestReadOnce: all registries are read, or none; and each error names its registry and the remedy.
func TestReadOnce(t *testing.T) {
	list := func(sure bool, addresses ...string) saying {
		return func(to Listener) {
			to.Lost(errors.New("not yet"))
			to.List(Services{"web": at(addresses...)}, sure)
			to.Change(Services{"web": nil}) // is not listened to
			to.Lost(errors.New("not any more"))
		}
	}
	for _, test := range []struct {
		name     string
		says     saying
		services int
		want     string // the error or, if there is none, the Problem
	}{
		{"listed", list(true, "192.0.2.1"), 1, ""},
		{"an instance that cannot be used", list(true, "192.0.2.1", "127.0.0.1"), 1, "127.0.0.1: it is left out"},
		{"a part", list(false, "192.0.2.1"), 0, "the registry c (consul) cannot be read: the server does not show all services"},
		{"refused", func(to Listener) { to.Refused(errors.New("403")) }, 0, "the registry c (consul) cannot be read: 403; give its authFile the rights"},
		{"unreachable", func(to Listener) { to.Lost(errors.New("connection refused")) }, 0, "connection refused; check its addresses"},
		{"silent", func(Listener) {}, 0, "no answer in time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, err := readOnce(t, `registries: [{type: consul, name: c, addresses: ["h:1"]}, {type: memory, services: [{host: db.legacy, ports: [{number: 1}]}]}]`, test.says,
					func(e Entry) bool { return e.Type == Consul })
				text := ""
				switch {
				case err != nil:
					text = err.Error()
				case len(now.Problems) > 0:
					text = now.Problems[0].String()
				}
				if !strings.Contains(text, test.want) || test.want == "" && text != "" || (err == nil) != (test.services > 0) {
					t.Errorf("got %q, %v; want %q", text, err, test.want)
				}
				if err == nil && len(now.Services) != test.services {
					t.Errorf("%d services, want %d", len(now.Services), test.services)
				}
			})
		})
	}
	_, err := readOnce(t, `registries: [{type: memory}]`, nil, func(e Entry) bool { return e.Type == Consul })
	if err == nil || !strings.Contains(err.Error(), "has no such registry; it has memory (memory)") {
		t.Error(err)
	}
}

func readOnce(t *testing.T, file string, says saying, wanted func(Entry) bool) (*Snapshot, error) {
	path := filepath.Join(t.TempDir(), "registries.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return ReadOnce(ctx, Options{
		Path: path, Domain: "cluster.local", Log: slog.New(slog.DiscardHandler),
		Factories: map[string]Factory{Consul: func(Entry, Access, *slog.Logger) (Reader, error) { return says, nil }},
	}, wanted)
}
