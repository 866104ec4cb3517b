package iptables

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestAwaitLock: a caller that finds the lock held waits, gets the reason after 30 seconds, and can be stopped before.
func TestAwaitLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "xtables.lock")
	if err := AwaitLock(t.Context(), path); err != nil {
		t.Errorf("without a lock file: %v", err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := AwaitLock(t.Context(), path); err != nil {
		t.Errorf("with a free lock: %v", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatalf("the lock was not released: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := AwaitLock(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), path) || time.Since(began) != lockWait {
			t.Errorf("with a lock that is held: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := AwaitLock(ctx, path); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("stopped before: %v after %v", err, time.Since(began))
		}
		time.AfterFunc(5*time.Second, func() { _ = unix.Flock(int(file.Fd()), unix.LOCK_UN) })
		if err := AwaitLock(t.Context(), path); err != nil {
			t.Errorf("with a lock that is released: %v", err)
		}
	})
}
