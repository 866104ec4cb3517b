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

// Limits of the HTTP servers: what they serve is small and local.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// HTTP is the actor that serves h on l. Told to stop, it lets requests under way finish for as long as drain, then
// closes their connections.
func HTTP(name string, l net.Listener, h http.Handler, drain time.Duration, log *slog.Logger) Actor {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.With("actor", name).Handler(), slog.LevelDebug),
	}
	return Actor{Name: name, Run: func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		select {
		case err := <-served:
			return fmt.Errorf("serving on %s: %w", l.Addr(), err)
		case <-ctx.Done():
		}
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		err := server.Shutdown(patience)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close() // requests that take longer are cut off; that is what the limit is for
		}
		<-served
		return err
	}}
}
