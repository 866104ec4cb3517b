package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is the length of the longest path of a unix socket on Linux, in bytes.
const maxSocketPath = 107

// dialTimeout is how long a running server may take to accept a connection.
const dialTimeout = time.Second

// Listen opens a unix socket at path for this user only. It creates the directory if necessary and replaces a socket that no
// process serves. It does not replace a socket that is in use, or a file that is not a socket. Close of the listener removes
// the socket unless another process has replaced it.
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
	if err := checkFree(ctx, path); err != nil {
		return nil, err
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s is too long: a socket's path has at most %d bytes; name a shorter --configPath, or run the agent in another directory",
			path, maxSocketPath)
	}
	// The socket is bound under a temporary name and renamed when its mode is set. No other process can connect before, and an old
	// socket is replaced atomically. The temporary name is as long as the name, because longer paths may not be possible, and the same each
	// time, so that the next agent removes what one has left that was killed.
	dir, name := filepath.Split(path)
	temporary := dir + "." + name[1:]
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%w; run the agent where its user can write to that directory", err)
	}
	l.SetUnlinkOnClose(false)
	var info fs.FileInfo
	if err = os.Chmod(temporary, 0o600); err == nil {
		if info, err = os.Lstat(temporary); err == nil {
			err = os.Rename(temporary, path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(temporary))
	}
	return &listener{UnixListener: l, path: path, info: info}, nil
}

// checkFree returns an error if a socket cannot be created at path.
func checkFree(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket; remove it", path)
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil // no process serves the socket
	case err != nil: // for example a missing permission, or a server that does not accept connections
		return fmt.Errorf("connecting to %s: %w; stop the process that serves it, or remove the file", path, err)
	}
	_ = conn.Close() // the connection was only a test
	return fmt.Errorf("another process serves %s: either another agent, or another SDS server; "+
		"give an agent temporary another one a --configPath of its own; "+
		"to use another SDS server, set WORKLOAD_IDENTITY_SOCKET_FILE to the name of its socket", path)
}

// listener removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path string
	info fs.FileInfo
}

// Close implements net.Listener.
func (l *listener) Close() error {
	if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.info) {
		_ = os.Remove(l.path) // a socket that cannot be removed is replaced by the next agent
	}
	return l.UnixListener.Close()
}
