package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// caller sends one request after the other.
type caller interface {
	call(ctx context.Context) (answer, error)
	close()
}

// answer is what came back: the server's report as it was sent, and a status where the protocol has one.
type answer struct {
	text   []byte
	status string
}

// dialer reads the target and returns what makes callers for it.
func (l load) dialer() (func() caller, error) {
	u, err := url.Parse(l.target)
	if err != nil {
		return nil, fmt.Errorf("the target: %w", err)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("the target %q has no host: want for instance http://localhost:8080/", l.target)
	}
	switch u.Scheme {
	case "http", "https", "h2c", "h2":
		return func() caller { return l.newWeb(u) }, nil
	case "grpc":
		return func() caller { return &remote{load: l, host: u.Host} }, nil
	case "tcp", "tcp-server-first":
		return func() caller { return &stream{load: l, host: u.Host, serverFirst: u.Scheme != "tcp"} }, nil
	case "udp":
		return func() caller { return &stream{load: l, host: u.Host, packets: true} }, nil
	}
	return nil, fmt.Errorf("the target's scheme %q is not known: want http, h2c, https, h2, grpc, tcp, tcp-server-first or udp", u.Scheme)
}

// web calls over HTTP.
type web struct {
	load
	client http.Client
	url    string
}

func (l load) newWeb(u *url.URL) *web {
	var p http.Protocols
	target := *u
	switch u.Scheme {
	case "h2c":
		p.SetUnencryptedHTTP2(true)
		target.Scheme = "http"
	case "h2":
		p.SetHTTP2(true)
		target.Scheme = "https"
	default:
		p.SetHTTP1(true)
	}
	return &web{load: l, url: target.String(), client: http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Protocols: &p, DisableKeepAlives: l.fresh, DisableCompression: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: l.insecure, ServerName: l.sni}, //nolint:gosec // the flag says so
		},
	}}
}

func (w *web) call(ctx context.Context) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, w.method, w.url, strings.NewReader(w.body))
	if err != nil {
		return answer{}, fmt.Errorf("making the request: %w", err)
	}
	r.Header, r.Host = w.headers.Clone(), w.host
	back, err := w.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer back.Body.Close()
	text, err := io.ReadAll(io.LimitReader(back.Body, 1<<20))
	if err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	if back.StatusCode >= 400 {
		return answer{}, fmt.Errorf("%s: %s", back.Status, bytes.TrimSpace(text))
	}
	return answer{bytes.TrimSpace(text), back.Status}, nil
}

func (w *web) close() { w.client.CloseIdleConnections() }

// remote calls over gRPC.
type remote struct {
	load
	host string
	conn *grpc.ClientConn
}

func (r *remote) call(ctx context.Context) (answer, error) {
	if r.conn == nil {
		options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy()}
		if r.load.host != "" {
			options = append(options, grpc.WithAuthority(r.load.host))
		}
		conn, err := grpc.NewClient("passthrough:///"+r.host, options...)
		if err != nil {
			return answer{}, fmt.Errorf("a client of %s: %w", r.host, err)
		}
		r.conn = conn
	}
	var pairs []string
	for name, values := range r.headers {
		for _, v := range values {
			pairs = append(pairs, strings.ToLower(name), v)
		}
	}
	ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	var out wrapperspb.StringValue
	if err := r.conn.Invoke(ctx, echoMethod, wrapperspb.String(r.body), &out, grpc.WaitForReady(false)); err != nil {
		return answer{}, err
	}
	if r.fresh {
		r.close()
	}
	return answer{[]byte(out.GetValue()), "OK"}, nil
}

func (r *remote) close() {
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}

// stream calls over TCP or UDP: a line or a datagram there, a report back.
type stream struct {
	load
	host        string
	serverFirst bool
	packets     bool
	conn        net.Conn
	in          *bufio.Reader
}

func (s *stream) call(ctx context.Context) (answer, error) {
	a, err := s.exchange(ctx)
	if err != nil || s.fresh || s.serverFirst { // a server that speaks first says its report once
		s.close()
	}
	return a, err
}

func (s *stream) exchange(ctx context.Context) (answer, error) {
	if s.conn == nil {
		network := "tcp"
		if s.packets {
			network = "udp"
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, s.host)
		if err != nil {
			return answer{}, err
		}
		s.conn, s.in = conn, bufio.NewReaderSize(conn, 64<<10)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := s.conn.SetDeadline(deadline); err != nil {
			return answer{}, fmt.Errorf("setting a deadline: %w", err)
		}
	}
	if s.packets {
		if _, err := s.conn.Write([]byte(s.body)); err != nil {
			return answer{}, err
		}
		buffer := make([]byte, 64<<10)
		n, err := s.conn.Read(buffer)
		return answer{text: buffer[:n]}, err
	}
	if !s.serverFirst {
		if _, err := fmt.Fprintln(s.conn, s.body); err != nil {
			return answer{}, err
		}
	}
	line, err := s.in.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed the connection instead of answering")
	}
	return answer{text: bytes.TrimSpace(line)}, err
}

func (s *stream) close() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}
