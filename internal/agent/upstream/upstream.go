// Package upstream connects the agent to the control plane over TLS: it verifies the control plane, and authenticates the agent
// with a token first and with the workload's certificate once there is one. If the settings say so, it connects in plaintext instead.
//
// Invariants: Without roots no TLS connection is made. A token is sent over TLS only, is read again for each call because it is replaced
// before it expires, and appears in no log or error. A certificate that the server does not accept is not shown to it again, by no caller, as long
// as the token is accepted.
//
// Goroutines: gRPC starts and ends its own; a Stream has one that receives, until Close.
package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// system selects the roots of the operating system instead of a file.
const system = "SYSTEM"

// maxToken is the size of the largest token file, in bytes.
const maxToken = 16 << 10

// window is how many bytes the control plane may send before they are read. It is fixed, because gRPC adapts it with a ping after each
// message, which costs both sides more than a small message itself. A megabyte suffices for 20 MB/s over 50 ms.
const window = 1 << 20

// Dialer opens connections to one server of the control plane.
type Dialer struct {
	// Address is the host and port of the server.
	Address string
	// RootsFile has the roots that vouch for the server, or is System.
	RootsFile string
	// ServerName is the name in the server's certificate; empty for the host of the address.
	ServerName string
	// TokenFile has the token. It need not exist if there is a certificate.
	TokenFile string
	// Certificate returns the certificate of the workload; nil if there is none yet. Roots returns further roots, as PEM.
	Certificate func() *tls.Certificate
	Roots       func() []byte
	// Compliance restricts the TLS of the connection.
	Compliance compliance.Policy
	// Plain is true if the server speaks plaintext. Then only the address counts, and neither token nor certificate is sent.
	Plain bool
	// Connect opens a connection to an address; nil for TCP.
	Connect func(ctx context.Context, address string) (net.Conn, error)
	// refused is the certificate that the server did not accept last, in DER; nil if there is none.
	refused atomic.Pointer[[]byte]
}

// Connection is a connection that is opened when it is first used.
type Connection struct {
	*grpc.ClientConn
	// Shows is the credential that it shows: certificate, token or nothing.
	Shows string
	// dialer has opened it, and shown is the certificate that it shows, in DER; nil for none.
	dialer *Dialer
	shown  *[]byte
}

// Dial opens a connection that shows the certificate of the workload, or the token alone if the server did not accept that certificate. All
// connections of a dialer share that knowledge, which comes from the errors of their streams: after a refusal, the next attempt shows the other one.
func (d *Dialer) Dial() (*Connection, error) {
	refused := d.refused.Load()
	if refused == nil || d.Plain {
		return d.DialWith(true)
	}
	own := d.Certificate()
	return d.DialWith(own == nil || !bytes.Equal(*content(own), *refused))
}

// content returns a certificate in DER.
func content(c *tls.Certificate) *[]byte {
	if len(c.Certificate) == 0 {
		return &[]byte{}
	}
	return &c.Certificate[0]
}

// DialWith opens a connection. If certificate is false it shows the token only, even if there is a certificate: a server refuses a connection
// with a certificate that it does not accept.
func (d *Dialer) DialWith(certificate bool) (*Connection, error) {
	if d.Plain {
		return d.dial("nothing", nil, insecure.NewCredentials())
	}
	pool, err := d.pool()
	if err != nil {
		return nil, err
	}
	name := d.ServerName
	if name == "" {
		if name, _, err = net.SplitHostPort(d.Address); err != nil {
			return nil, fmt.Errorf("%q is not host:port", d.Address)
		}
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: name}
	d.Compliance.Apply(settings)
	_, tokenErr := d.token()
	shows := "token"
	var shown *[]byte
	own := d.Certificate()
	expired := own != nil && !time.Now().Before(own.Leaf.NotAfter)
	if own != nil && (certificate || tokenErr != nil) && !expired {
		shows, shown = "certificate", content(own)
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	} else if tokenErr != nil && expired {
		return nil, fmt.Errorf("the agent cannot show who it is: its certificate has expired at %s, and %w", own.Leaf.NotAfter.UTC().Format(time.RFC3339), tokenErr)
	} else if tokenErr != nil {
		return nil, fmt.Errorf("the agent cannot show who it is: %w", tokenErr)
	}
	var options []grpc.DialOption
	if tokenErr == nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer{d}))
	}
	return d.dial(shows, shown, credentials.NewTLS(settings), options...)
}

func (d *Dialer) dial(shows string, shown *[]byte, c credentials.TransportCredentials, options ...grpc.DialOption) (*Connection, error) {
	opened := &Connection{Shows: shows, dialer: d, shown: shown}
	options = append(options, grpc.WithStreamInterceptor(opened.stream), grpc.WithTransportCredentials(c), grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	if d.Connect != nil {
		options = append(options, grpc.WithContextDialer(d.Connect))
	}
	conn, err := grpc.NewClient("passthrough:///"+d.Address, options...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", d.Address, err)
	}
	opened.ClientConn = conn
	return opened, nil
}

// Failed notes that the server did not accept the connection. The next one shows the token if this one has shown a certificate, and otherwise
// the certificate again.
func (c *Connection) Failed() { c.dialer.refused.Store(c.shown) }

// early is how soon a stream must end without any response to mean that the server did not accept the certificate. With TLS 1.3
// a server refuses a certificate after the handshake.
const early = 10 * time.Second

// stream opens a stream that records by itself if the server does not accept the connection.
func (c *Connection) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, conn, method, options...)
	if err != nil {
		c.judge(err)
		return nil, err
	}
	return &watched{ClientStream: s, connection: c, began: time.Now()}, nil
}

// judge notes that the connection was not accepted, if an error may say so. Servers refuse a connection or a call; an answer that a
// caller is not authorized does not mean that its credential was not accepted.
func (c *Connection) judge(err error) {
	if code := status.Code(err); code == codes.Unavailable || code == codes.Unauthenticated {
		c.Failed()
	}
}

// watched is a stream that judges the connection by the result of the first receive.
type watched struct {
	grpc.ClientStream
	connection *Connection
	began      time.Time
	received   bool // used by the receiving goroutine
}

// RecvMsg implements grpc.ClientStream.
func (w *watched) RecvMsg(m any) error {
	err := w.ClientStream.RecvMsg(m)
	if !w.received && err != nil && time.Since(w.began) < early {
		w.connection.judge(err)
	}
	w.received = true
	return err
}

// pool returns the roots that vouch for the server.
func (d *Dialer) pool() (*x509.CertPool, error) {
	if d.RootsFile == system {
		return x509.SystemCertPool()
	}
	pool := x509.NewCertPool()
	known := d.Roots != nil && pool.AppendCertsFromPEM(d.Roots())
	text, err := disk.Read(d.RootsFile)
	switch {
	case err == nil && pool.AppendCertsFromPEM(text), known:
		return pool, nil
	case err == nil:
		return nil, fmt.Errorf("the roots of the control plane: %s has no PEM certificate", d.RootsFile)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the roots of the control plane: %s does not exist; set XDS_ROOT_CA (and CA_ROOT_CA) to root-cert.pem of the control plane's state folder, or mount the ConfigMap istio-ca-root-cert", d.RootsFile)
	}
	return nil, fmt.Errorf("the roots of the control plane: %w", err)
}

// token reads the token.
func (d *Dialer) token() (string, error) {
	text, err := disk.Read(d.TokenFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the token %s does not exist; mount one there, or write one with pilotctl token create and name it with --tokenFile", d.TokenFile)
	case err != nil:
		return "", fmt.Errorf("the token: %w", err)
	case len(text) > maxToken:
		return "", fmt.Errorf("the token %s has %d bytes, and the most is %d", d.TokenFile, len(text), maxToken)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("the token file %s has no token, or more than one", d.TokenFile)
	}
	if at := expiry(token); !at.IsZero() && time.Now().After(at) {
		return "", fmt.Errorf("the token %s has expired at %s; write a new one there (pilotctl workload entry configure, or pilotctl token create)", d.TokenFile, at.UTC().Format(time.RFC3339))
	}
	return token, nil
}

// expiry returns when a token expires; zero if it has no expiry. The token is not verified: the server does that.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Expires <= 0 || claims.Expires > maxExpiry {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}

// maxExpiry is the latest time that is read from a token, in seconds since 1970: the end of the year 9999.
const maxExpiry = 253402300799

// bearer adds the token to calls.
type bearer struct{ dialer *Dialer }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.dialer.token()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
