package server

import (
	"crypto/x509"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// certified are the connections whose clients have shown a certificate, with the chains that TLS has verified.
type certified struct {
	mu     sync.Mutex
	chains map[*connection][][]*x509.Certificate
}

// watched is a connection that is forgotten when it is closed.
type watched struct {
	net.Conn
	forget func()
}

// Close closes the connection.
func (w watched) Close() error {
	w.forget()
	return w.Conn.Close()
}

// certify remembers a connection with a certificate until it is closed. It looks at the revocation lists behind that: a list that came
// during the handshake is either seen here, or its EndRevoked sees the connection.
func (s *Server) certify(c *connection, conn net.Conn, chains [][]*x509.Certificate) (net.Conn, error) {
	s.certified.mu.Lock()
	if s.certified.chains == nil {
		s.certified.chains = map[*connection][][]*x509.Certificate{}
	}
	s.certified.chains[c] = chains
	s.certified.mu.Unlock()
	w := watched{conn, func() {
		s.certified.mu.Lock()
		defer s.certified.mu.Unlock()
		delete(s.certified.chains, c)
	}}
	if err := s.revoked(chains); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (s *Server) revoked(chains [][]*x509.Certificate) error {
	if s.options.Revoked == nil {
		return nil
	}
	return s.options.Revoked(chains)
}

// EndRevoked closes the connections whose certificates are revoked now, and ends their streams. It is called when a revocation list has
// changed.
func (s *Server) EndRevoked() {
	reasons := map[*connection]error{}
	s.certified.mu.Lock()
	for c, chains := range s.certified.chains {
		if err := s.revoked(chains); err != nil {
			reasons[c] = err
		}
	}
	s.certified.mu.Unlock()
	if len(reasons) == 0 {
		return
	}
	for _, stream := range s.all() {
		if err := reasons[stream.conn]; err != nil {
			stream.end(status.Errorf(codes.Unauthenticated, "client certificate: %v", err))
		}
	}
	for c, err := range reasons {
		s.options.Log.Warn("a connection ends, because the certificate of its client is revoked", "from", c.conn.RemoteAddr().String(), "reason", err)
		c.close()
	}
}
