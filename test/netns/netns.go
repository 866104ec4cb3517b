// Package netns makes network namespaces without names, for tests: each is gone when it was closed and nothing runs in it any more.
//
// A Namespace may be used from several goroutines. What Do runs has a thread of its own, which ends with it.
package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace, by its descriptor.
type Namespace int

// None is no namespace.
const None Namespace = -1

// New makes a namespace. Its links are down.
func New() (Namespace, error) {
	fd, errs := -1, make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		errs <- func() (err error) {
			if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			return err
		}()
	}()
	err := <-errs
	return Namespace(fd), err
}

// Close forgets the namespace.
func (n Namespace) Close() {
	if n != None {
		_ = unix.Close(int(n))
	}
}

// Path is a name of the namespace that ip understands.
func (n Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n)) }

// Enter moves the thread of the caller into the namespace, for good.
func (n Namespace) Enter() error { return unix.Setns(int(n), unix.CLONE_NEWNET) }

// Do runs f on a thread of its own inside the namespace. Sockets that it makes belong to uid and gid, if uid is not negative.
func (n Namespace) Do(uid, gid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := n.Enter(); err != nil {
			panic(fmt.Sprintf("entering a network namespace: %v", err))
		}
		if uid >= 0 {
			_, _ = unix.SetfsgidRetGid(gid)
			_, _ = unix.SetfsuidRetUid(uid)
		}
		f()
	}()
	<-done
}

// Dial connects from inside the namespace to an address that is no name. from is the address of the caller, nil for any.
func (n Namespace) Dial(ctx context.Context, from net.IP, to string) (c net.Conn, err error) {
	var d net.Dialer
	if from != nil {
		d.LocalAddr = &net.TCPAddr{IP: from}
	}
	n.Do(-1, -1, func() { c, err = d.DialContext(ctx, "tcp", to) })
	return c, err
}

// Listen listens inside the namespace.
func (n Namespace) Listen(address string) (l net.Listener, err error) {
	n.Do(-1, -1, func() { l, err = net.Listen("tcp", address) })
	return l, err
}

// IP runs several commands of ip, one a line, inside the namespace.
func (n Namespace) IP(lines string) (err error) {
	n.Do(-1, -1, func() {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines)
		if out, e := cmd.CombinedOutput(); e != nil {
			err = fmt.Errorf("ip: %w: %s", e, out)
		}
	})
	return err
}

// Sysctl sets values below /proc/sys/net.
func (n Namespace) Sysctl(values map[string]string) (err error) {
	n.Do(-1, -1, func() {
		for name, value := range values {
			if e := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o600); e != nil {
				err = e
			}
		}
	})
	return err
}
