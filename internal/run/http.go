package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the HTTP servers, which serve small pages to few clients.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// HTTP returns an actor that serves h on l. When it is stopped it waits for running requests for at most drain, and closes the
// connections of the rest.
func HTTP(name string, l net.Listener, h http.Handler, drain time.Duration, log *slog.Logger) Actor {
	return Actor{Name: name, Run: func(ctx context.Context) error { return serve(ctx, l, h, drain, log.With("actor", name)) }}
}

// ListenHTTP is like HTTP, but opens the address when the actor starts. The actor is ready when it listens.
func ListenHTTP(name, addr string, h http.Handler, drain time.Duration, log *slog.Logger) Actor {
	ready := make(chan struct{})
	return Actor{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		l, err := listen(ctx, addr)
		if err != nil {
			return err
		}
		close(ready)
		return serve(ctx, l, h, drain, log.With("actor", name))
	}}
}

func serve(ctx context.Context, l net.Listener, h http.Handler, drain time.Duration, log *slog.Logger) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(limited)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // aborts the requests that exceed the limit
	}
	if closed := <-served; !errors.Is(closed, http.ErrServerClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// listen opens a TCP listener.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w; free the address or choose another", err)
	}
	return l, nil
}
