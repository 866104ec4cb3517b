package agent

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/patched"
)

// flushes is a patch.
func flushes(seconds int) *bootstrapv3.Bootstrap {
	return &bootstrapv3.Bootstrap{StatsFlushInterval: durationpb.New(time.Duration(seconds) * time.Second)}
}

// patchable returns what patches a proxy whose Envoy refuses a bootstrap with the text "11s".
func patchable(t *testing.T) *patching {
	t.Helper()
	dir := t.TempDir()
	s := settings(t, []string{"BOOTSTRAP_XDS_AGENT=true"}, "--configPath="+dir)
	if !s.PatchedBootstrap {
		t.Fatal("the settings do not ask for patches")
	}
	c, err := Boot(s, Machine{Memory: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "envoy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nif grep -q '\"11s\"' \"$2\"; then echo unlucky; exit 1; fi\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	p, err := newProxy(s, c, binary, Host{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &patching{proxy: p, settings: s, config: c, log: slog.New(slog.DiscardHandler)}
}

// TestPatchBeforeStart: Envoy is started with the patch that came last, and one that it would refuse changes nothing.
func TestPatchBeforeStart(t *testing.T) {
	p := patchable(t)
	plain := p.proxy.first()
	for _, c := range []struct {
		patch  *bootstrapv3.Bootstrap
		fails  string
		starts string // the interval with which Envoy starts
	}{
		{flushes(7), "", `"7s"`}, {flushes(11), "unlucky", `"7s"`}, {&bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "x"}}, "id of the node", `"7s"`}, {flushes(9), "", `"9s"`}, {nil, "", ""},
	} {
		err := p.apply(t.Context(), c.patch)
		if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%v: %v", c.patch, err)
		}
		got := p.proxy.first()
		if c.starts == "" && !got.equal(plain) || !strings.Contains(got.text, c.starts) {
			t.Errorf("after %v it starts with\n%s", c.patch, got.text)
		}
	}
}

// TestPatchAfterStart: a later patch is not the first revision any more. It is reported, and the next revision has it.
func TestPatchAfterStart(t *testing.T) {
	p := patchable(t)
	reported := 0
	p.changed = func() { reported++ }
	if err := p.apply(t.Context(), flushes(7)); err != nil {
		t.Fatal(err)
	}
	if !p.await(t.Context(), nil) || p.proxy.abandon() {
		t.Error("Envoy is not started, or its start can be abandoned when it has begun")
	}
	for _, patch := range []*bootstrapv3.Bootstrap{flushes(7), flushes(8), flushes(8)} {
		if err := p.apply(t.Context(), patch); err != nil {
			t.Fatal(err)
		}
	}
	next, err := p.proxy.revision(p.settings, p.config)
	if err != nil || reported != 1 || !strings.Contains(p.proxy.first().text, `"7s"`) || !strings.Contains(next.text, `"8s"`) {
		t.Errorf("reported %d times, %v; then\n%s", reported, err, next.text)
	}
}

// TestPatchesWithin: a control plane that does not answer delays the start by ten seconds. Then Envoy starts with the stored patches, if there are any.
func TestPatchesWithin(t *testing.T) {
	p := patchable(t)
	synctest.Test(t, func(t *testing.T) {
		store := lastgood.Open(filepath.Join(t.TempDir(), "kept"), p.config.Node.GetId(), p.log)
		silent := func() (*grpc.ClientConn, error) { return nil, context.DeadlineExceeded }
		restored := 0
		p.proxy.abandoned = make(chan struct{}) // of this bubble
		f := patched.New(silent, p.config.Node, "sidecar", store, func(context.Context, *bootstrapv3.Bootstrap) error {
			restored++
			return nil
		}, p.log)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- f.Run(ctx) }()
		begin := time.Now()
		if start, took := p.await(ctx, f), time.Since(begin); !start || took != patchesWithin || restored != 0 {
			t.Errorf("the start is %t after %v, and %d patches were restored", start, took, restored)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// TestStopWithinPatches: an agent that is asked to end while it waits for patches does not wait any longer, and does not start Envoy. A second
// request changes nothing.
func TestStopWithinPatches(t *testing.T) {
	p := patchable(t)
	synctest.Test(t, func(t *testing.T) {
		store := lastgood.Open(filepath.Join(t.TempDir(), "kept"), p.config.Node.GetId(), p.log)
		silent := func() (*grpc.ClientConn, error) { return nil, context.DeadlineExceeded }
		f := patched.New(silent, p.config.Node, "sidecar", store, func(context.Context, *bootstrapv3.Bootstrap) error { return nil }, p.log)
		p.proxy.abandoned = make(chan struct{}) // of this bubble
		begin, asked := time.Now(), 3*time.Second
		time.AfterFunc(asked, func() {
			if first, again := p.proxy.abandon(), p.proxy.abandon(); !first || !again {
				t.Error("the start is not abandoned")
			}
		})
		if start, took := p.await(t.Context(), f), time.Since(begin); start || took != asked {
			t.Errorf("the start is %t, after %v", start, took)
		}
	})
}
