package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pair is a certificate and its key, as PEM.
type pair struct{ cert, key []byte }

// authority signs certificates of one cluster. It is as old as the cluster and does not outlive it.
type authority struct {
	pair
	leaf *x509.Certificate
	sign *ecdsa.PrivateKey
}

// identity is what a certificate says: who, and for servers where.
type identity struct {
	name   string
	groups []string
	hosts  []string
	ips    []netip.Addr
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// validity begins an hour ago: clocks of what looks at it may differ.
func validity(c *x509.Certificate) {
	c.NotBefore = time.Now().Add(-time.Hour)
	c.NotAfter = time.Now().Add(365 * 24 * time.Hour)
}

func newAuthority(name string) (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		DNSNames: []string{name},
	}
	validity(c)
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	return &authority{pair: pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM}, leaf: leaf, sign: key}, nil
}

// issue signs a certificate that is good for both ends of a connection.
func (a *authority) issue(id identity) (pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, fmt.Errorf("making a serial number: %w", err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id.name, Organization: id.groups}, DNSNames: id.hosts,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, ip := range id.ips {
		c.IPAddresses = append(c.IPAddresses, net.IP(ip.AsSlice()))
	}
	validity(c)
	der, err := x509.CreateCertificate(rand.Reader, c, a.leaf, key.Public(), a.sign)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", id.name, err)
	}
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM}, nil
}

// pool is what a verifier of this authority's certificates needs.
func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.leaf)
	return p
}

// write puts a pair into dir/name.crt and dir/name.key.
func (p pair) write(dir, name string) error {
	if p.cert != nil {
		if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o644); err != nil {
			return fmt.Errorf("writing a certificate: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	return nil
}

func (p pair) tls() (tls.Certificate, error) {
	c, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return c, fmt.Errorf("reading a certificate just made: %w", err)
	}
	return c, nil
}

// pki is all that makes parts of a cluster trust each other.
type pki struct {
	dir     string
	cluster *authority // API server, kubelets and all their clients
	etcd    *authority // etcd and its one client: whoever writes there owns everything
}

// newPKI makes the authorities and the files that the control plane reads.
func newPKI(dir string, apiServer identity, private netip.Addr) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of certificates: %w", err)
	}
	p := &pki{dir: dir}
	var err error
	if p.cluster, err = newAuthority("pilot-test-cluster"); err != nil {
		return nil, err
	}
	if p.etcd, err = newAuthority("pilot-test-etcd"); err != nil {
		return nil, err
	}
	front, err := newAuthority("pilot-test-front-proxy")
	if err != nil {
		return nil, err
	}
	_, tokens, err := newKey()
	if err != nil {
		return nil, err
	}
	files := map[string]pair{"ca": p.cluster.pair, "etcd-ca": p.etcd.pair, "front-proxy-ca": front.pair, "service-account": {key: tokens}}
	for _, f := range []struct {
		file string
		by   *authority
		id   identity
	}{
		{"apiserver", p.cluster, apiServer},
		{"etcd", p.etcd, identity{name: "etcd", hosts: []string{"localhost"}, ips: []netip.Addr{private}}},
		{"apiserver-etcd-client", p.etcd, identity{name: "kube-apiserver"}},
		{"apiserver-kubelet-client", p.cluster, identity{name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}}},
		{"front-proxy-client", front, identity{name: "front-proxy-client"}},
	} {
		if files[f.file], err = f.by.issue(f.id); err != nil {
			return nil, err
		}
	}
	for name, f := range files {
		if err := f.write(dir, name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// client is the configuration of a client that id's certificate identifies.
func (p *pki) client(server string, id identity) (*rest.Config, error) {
	c, err := p.cluster.issue(id)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            server,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.cluster.cert, CertData: c.cert, KeyData: c.key},
		Proxy:           direct,
		QPS:             -1, // the API server's own fairness is enough
	}, nil
}

// kubeconfig writes a client's configuration for programs that want a file.
func kubeconfig(path, name string, c *rest.Config) error {
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
