package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// maxSocketPath is the longest path that Linux takes for a unix socket.
const maxSocketPath = 107

// dialTimeout is how long somebody alive may take to accept a connection.
const dialTimeout = time.Second

// Listen opens the socket at path, for this user only. It makes its directory, and replaces a socket that a process has
// left behind; one that somebody serves, and what is no socket, it leaves alone. The listener removes the socket at its
// end, unless somebody has replaced it.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	l, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("the socket for certificates and keys: %w", err)
	}
	return l, nil
}

func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("%w; run the agent where its user can make that directory", err)
	}
	if err := vacant(ctx, path); err != nil {
		return nil, err
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s is too long: a socket's path has at most %d bytes; name a shorter --configPath, or run the agent in another directory",
			path, maxSocketPath)
	}
	// It is bound beside its place, and comes there when its mode is right: nobody else can connect before, and what
	// lies there is replaced at once.
	beside := filepath.Join(filepath.Dir(path), "."+strconv.Itoa(os.Getpid()))
	if err := os.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: beside, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%w; run the agent where its user can write to that directory", err)
	}
	l.SetUnlinkOnClose(false)
	var info fs.FileInfo
	if err = os.Chmod(beside, 0o600); err == nil {
		if info, err = os.Lstat(beside); err == nil {
			err = os.Rename(beside, path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(beside))
	}
	return &listener{UnixListener: l, path: path, info: info}, nil
}

// vacant looks whether a socket can be at path.
func vacant(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is there and is not a socket; remove it", path)
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil // whoever served it is gone
	case err != nil: // such as no permission, or somebody who does not accept connections
		return fmt.Errorf("asking who serves %s: %w; end that process, or remove the file", path, err)
	}
	_ = conn.Close() // it was only to see
	return fmt.Errorf("another process serves %s: another agent, or an SDS server of somebody else's; "+
		"give an agent beside another one a --configPath of its own; "+
		"for an SDS server of somebody else's, name its socket by WORKLOAD_IDENTITY_SOCKET_FILE", path)
}

// listener removes its socket at its end.
type listener struct {
	*net.UnixListener
	path string
	info fs.FileInfo
}

// Close implements net.Listener.
func (l *listener) Close() error {
	if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.info) {
		_ = os.Remove(l.path) // one that stays is replaced by the next
	}
	return l.UnixListener.Close()
}
