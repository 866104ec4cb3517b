package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pilotmesh/pilot/test/kit/certs"
)

// pki is all that makes parts of a cluster trust each other.
type pki struct {
	dir     string
	cluster *certs.Authority // API server, kubelets and all their clients
	etcd    *certs.Authority // etcd and its one client: a client that can write there controls the cluster
}

// newPKI makes the authorities and the files that the control plane reads.
func newPKI(dir string, apiServer certs.Identity, private netip.Addr) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of certificates: %w", err)
	}
	p := &pki{dir: dir}
	var err error
	if p.cluster, err = certs.NewAuthority("pilot-test-cluster"); err != nil {
		return nil, err
	}
	if p.etcd, err = certs.NewAuthority("pilot-test-etcd"); err != nil {
		return nil, err
	}
	front, err := certs.NewAuthority("pilot-test-front-proxy")
	if err != nil {
		return nil, err
	}
	tokens, err := certs.NewKey()
	if err != nil {
		return nil, err
	}
	files := map[string]certs.Pair{"ca": p.cluster.Pair(), "etcd-ca": p.etcd.Pair(), "front-proxy-ca": front.Pair(), "service-account": {Key: tokens}}
	for _, f := range []struct {
		file string
		by   *certs.Authority
		id   certs.Identity
	}{
		{"apiserver", p.cluster, apiServer},
		{"etcd", p.etcd, certs.Identity{Name: "etcd", Hosts: []string{"localhost"}, IPs: []netip.Addr{private}}},
		{"apiserver-etcd-client", p.etcd, certs.Identity{Name: "kube-apiserver"}},
		{"apiserver-kubelet-client", p.cluster, certs.Identity{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}},
		{"front-proxy-client", front, certs.Identity{Name: "front-proxy-client"}},
	} {
		if files[f.file], err = f.by.Issue(f.id); err != nil {
			return nil, err
		}
	}
	for name, f := range files {
		if err := f.Write(dir, name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// etcdClient is a client of etcd with the rights of the API server.
func (p *pki) etcdClient() (*http.Client, error) {
	own, err := tls.LoadX509KeyPair(p.file("apiserver-etcd-client.crt"), p.file("apiserver-etcd-client.key"))
	if err != nil {
		return nil, fmt.Errorf("the certificate of a client of etcd: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(p.etcd.Pair().Cert))
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{own}, RootCAs: roots, MinVersion: tls.VersionTLS12,
	}}}, nil
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// client is the configuration of a client that id's certificate identifies.
func (p *pki) client(server string, id certs.Identity) (*rest.Config, error) {
	c, err := p.cluster.Issue(id)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            server,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(p.cluster.Pair().Cert), CertData: []byte(c.Cert), KeyData: []byte(c.Key)},
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
