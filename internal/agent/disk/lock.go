package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked reports that another process holds the lock of a folder.
var ErrLocked = errors.New("another process uses it")

// Lock locks a folder for this process, and makes the folder if it does not exist. The lock ends with release, or with the process, however that
// ends. It writes nothing into the folder. A file system without locks grants every lock.
func Lock(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, ErrLocked), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
