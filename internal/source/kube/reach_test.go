package kube

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func TestUnreachable(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{fmt.Errorf("list: %w", &url.Error{Op: "Get", URL: "https://x", Err: errors.New("refused")}), true},
		{io.ErrUnexpectedEOF, true},
		{apierrors.NewUnauthorized("no"), true},
		{apierrors.NewServiceUnavailable("no"), true},
		{apierrors.NewForbidden(pods, "", nil), false},
		{apierrors.NewNotFound(pods, ""), false},
		{apierrors.NewInternalError(errors.New("x")), false},
		{errors.New("cannot decode"), false},
	} {
		if got := unreachable(c.err) != nil; got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

func TestTooOld(t *testing.T) {
	for _, c := range []struct {
		answer string
		old    bool
	}{
		{`{"major": "1", "minor": "28+", "gitVersion": "v1.28.5-eks"}`, true},
		{`{"major": "1", "minor": "29", "gitVersion": "v1.29.0"}`, false},
		{`{"major": "1", "minor": "36+", "gitVersion": "v1.36.3"}`, false},
		{`{"major": "2", "minor": "0"}`, false},
		{`{"major": "", "minor": ""}`, false},
		{`<html>`, false},
	} {
		if v, old := tooOld([]byte(c.answer)); old != c.old || old && v != "v1.28.5-eks" {
			t.Errorf("%s: %q, %v", c.answer, v, old)
		}
	}
}

func FuzzTooOld(f *testing.F) {
	f.Add([]byte(`{"major": "1", "minor": "28+", "gitVersion": "v1.28.5"}`))
	f.Fuzz(func(_ *testing.T, answer []byte) { tooOld(answer) })
}

// TestSilentWatch checks that a watch that delivers nothing ends, and that a watch that delivers something continues.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := watch.NewRaceFreeFake()
		var running sync.WaitGroup
		silent := 0
		w := alive(inner, 3*time.Minute, &running, func() { silent++ })
		for range 4 {
			<-time.After(2 * time.Minute)
			inner.Add(&core.Pod{})
			if e, ok := <-w.ResultChan(); !ok || e.Type != watch.Added {
				t.Fatal("the event is lost")
			}
		}
		began := time.Now()
		if _, ok := <-w.ResultChan(); ok || time.Since(began) != 3*time.Minute || silent != 1 {
			t.Errorf("ended after %v, silent %d", time.Since(began), silent)
		}
		w.Stop()
		running.Wait()
		if !inner.IsStopped() {
			t.Error("the watch within goes on")
		}

		// The caller may stop a watch without taking its events.
		inner = watch.NewRaceFreeFake()
		w = alive(inner, 3*time.Minute, &running, func() { silent++ })
		inner.Add(&core.Pod{})
		synctest.Wait()
		w.Stop()
		w.Stop()
		running.Wait()
		if silent != 1 || !inner.IsStopped() {
			t.Errorf("silent %d", silent)
		}
	})
}
