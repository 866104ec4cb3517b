// Package lab makes network namespaces with a workload, its proxy, the world around it, and a virtual machine behind it, and asks
// from each of them who answers at an address.
//
// Everybody who listens has goroutines, which Close ends. Each runs on a thread of its own, in its namespace and as its user.
package lab

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name: it is gone when its descriptor is closed and nothing runs in it.
type Namespace int

// none is no namespace.
const none Namespace = -1

func newNamespace() (Namespace, error) {
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

// close forgets the namespace.
func (n Namespace) close() {
	if n != none {
		shut(int(n))
	}
}

// path is a name of the namespace that ip understands.
func (n Namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n)) }

// Do runs f on a thread of its own inside the namespace. Sockets that it makes belong to uid and gid, if uid is not negative.
func (n Namespace) Do(uid, gid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Setns(int(n), unix.CLONE_NEWNET); err != nil {
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

// ip runs several commands of ip, one a line, inside the namespace.
func (n Namespace) ip(lines string) (err error) {
	n.Do(-1, -1, func() {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines)
		if out, e := cmd.CombinedOutput(); e != nil {
			err = fmt.Errorf("ip: %w: %s", e, out)
		}
	})
	return err
}

// quiet are settings that keep addresses and routes from changing by themselves.
var quiet = map[string]string{
	"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0", "ipv6/conf/all/accept_dad": "0",
	"ipv6/conf/default/accept_dad": "0", "ipv6/conf/default/router_solicitations": "0", "ipv6/conf/default/accept_ra": "0",
}

// sysctl sets values below /proc/sys/net.
func (n Namespace) sysctl(values map[string]string) (err error) {
	n.Do(-1, -1, func() {
		for name, value := range values {
			if e := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o600); e != nil {
				err = e
			}
		}
	})
	return err
}
