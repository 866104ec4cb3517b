package backend

import (
	"crypto/tls"
	"slices"
	"sync"

	"github.com/pilotmesh/pilot/test/exam/pki"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

// serverConfig is the TLS side of an echo port: 8443 backend, 8444 public by SNI, 8445 intruder, 8446 backend with a client certificate required.
func (p *Keys) serverConfig(port int) (*tls.Config, error) {
	backend, err := p.Backend.TLS()
	if err != nil {
		return nil, err
	}
	intruder, err := p.Intruder.TLS()
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	switch port {
	case 8445:
		cfg.Certificates = []tls.Certificate{intruder}
	case 8446:
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, certs.Pool(p.MeshCA)
		fallthrough
	case 8443:
		cfg.Certificates = []tls.Certificate{backend}
	case 8444:
		issuer, err := p.PublicCert.Authority()
		if err != nil {
			return nil, err
		}
		cfg.GetCertificate = bySNI(issuer)
	}
	cfg.GetConfigForClient = withALPN(cfg)
	return cfg, nil
}

// withALPN negotiates h2 or http/1.1 and, like Envoy, continues without ALPN when the client offers neither.
func withALPN(base *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	plain := base.Clone()
	alpn := base.Clone()
	alpn.NextProtos = []string{"h2", "http/1.1"}
	return func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(h.SupportedProtos, "h2") || slices.Contains(h.SupportedProtos, "http/1.1") {
			return alpn, nil
		}
		return plain, nil
	}
}

func bySNI(issuer *certs.Authority) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	made := map[string]*tls.Certificate{}
	return func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name := h.ServerName
		if name == "" {
			name = "unnamed.exam"
		}
		mu.Lock()
		defer mu.Unlock()
		if c := made[name]; c != nil {
			return c, nil
		}
		kp, err := issuer.Issue(pki.Site(name))
		if err != nil {
			return nil, err
		}
		c, err := kp.TLS()
		made[name] = &c
		return &c, err
	}
}
