package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LockFile is the file that programs lock while they change rules with the variant legacy.
const LockFile = "/run/xtables.lock"

// AwaitLock waits until no other program changes rules: rules that are read before may be incomplete. The programs that
// write rules take the lock themselves, so it is free again when AwaitLock returns.
func AwaitLock(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil // no program has locked it yet, or the program that writes will report the missing permission
	}
	if err != nil {
		return err
	}
	defer file.Close()
	late := time.NewTimer(lockWait)
	defer late.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil // the descriptor is closed on return, and the lock is released with it
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("another program holds the lock of iptables (%s) for longer than %v: see who with `fuser %[1]s`", path, lockWait)
		case <-tick.C:
		}
	}
}
