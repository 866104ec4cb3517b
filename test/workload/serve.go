package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/kit/echo"
)

// server is one run of the serving role.
type server struct {
	name, version string
	drain         time.Duration
	certificate   tls.Certificate
	servers       *echo.Servers
}

// serve opens what the flags name and answers until ctx ends.
func serve(ctx context.Context, args []string, out io.Writer) error {
	s := &server{servers: echo.NewServers()}
	flags := flag.NewFlagSet("workload serve", flag.ContinueOnError)
	flags.StringVar(&s.name, "name", "", "what the server calls itself (default: POD_NAME, or the host's name)")
	flags.StringVar(&s.version, "version", "", "what it calls its version")
	flags.DurationVar(&s.drain, "drain", 10*time.Second, "how long requests may take to end after SIGTERM")
	cert := flags.String("cert", "", "certificate file for TLS (default: one made on the spot)")
	key := flags.String("key", "", "key file for TLS")
	open := []struct {
		addresses string
		name      string
		what      string
		listen    func(ctx context.Context, address string) error
	}{
		{name: "http", what: "HTTP/1.1 and HTTP/2 without TLS", listen: s.openHTTP},
		{name: "tls", what: "HTTPS", listen: s.openHTTPS},
		{name: "grpc", what: "gRPC: /pilot.test.Echo/Echo and health", listen: s.openGRPC},
		{name: "tcp-server-first", what: "TCP: says its report, then repeats what it hears", listen: s.openServerFirst},
		{name: "tcp", what: "TCP: answers every line with its report", listen: s.openClientFirst},
		{name: "udp", what: "UDP: answers every datagram with its report", listen: s.openUDP},
	}
	for i := range open {
		flags.StringVar(&open[i].addresses, open[i].name, "", "address to serve "+open[i].what)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading flags: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := s.identify(*cert, *key); err != nil {
		return err
	}
	opened := 0
	for _, o := range open {
		if o.addresses == "" {
			continue
		}
		if err := o.listen(ctx, o.addresses); err != nil {
			return errors.Join(fmt.Errorf("--%s: %w", o.name, err), s.close())
		}
		opened++
		fmt.Fprintf(out, "%s: %s on %s\n", s.name, o.name, o.addresses)
	}
	if opened == 0 {
		return errors.New("nothing to serve: name at least one address, for instance --http :8080")
	}
	select {
	case <-ctx.Done():
		fmt.Fprintf(out, "%s: ending\n", s.name)
		return s.close()
	case err := <-s.servers.Failed():
		return errors.Join(err, s.close())
	}
}

// identify finds the server's name and certificate.
func (s *server) identify(cert, key string) error {
	if s.name == "" {
		s.name = os.Getenv("POD_NAME")
	}
	if s.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("finding a name: %w; set --name", err)
		}
		s.name = host
	}
	var err error
	if cert != "" {
		s.certificate, err = tls.LoadX509KeyPair(cert, key)
	} else {
		s.certificate, err = certs.SelfSigned(certs.Identity{Name: s.name, Hosts: []string{s.name, "localhost"}})
	}
	if err != nil {
		return fmt.Errorf("the certificate: %w", err)
	}
	return nil
}

// close ends all listeners at once, gives requests under way their time and waits for every goroutine.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	return s.servers.Close(ctx)
}
