package main

import (
	"fmt"
	"maps"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/security/credential"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

// gatewaySecrets makes the Secrets of the gateways.
type gatewaySecrets struct{ authority *certs.Authority }

func newGatewaySecrets() (*gatewaySecrets, error) {
	a, err := certs.NewAuthority("bench")
	return &gatewaySecrets{a}, err
}

// secret returns the Secret of a host with a new certificate.
func (s *gatewaySecrets) secret(i int) (map[api.Key]kube.Value, error) {
	pair, err := s.authority.Issue(certs.Identity{Name: "bench", Hosts: []string{gatewayHost(i)}})
	if err != nil {
		return nil, err
	}
	content, flaws := credential.Parse(map[string][]byte{credential.TLSCertificate: []byte(pair.Cert), credential.TLSKey: []byte(pair.Key)})
	if len(flaws) > 0 {
		return nil, fmt.Errorf("the Secret of %s: %v", gatewayHost(i), flaws)
	}
	k := api.Key{Kind: kube.KindSecret, Namespace: "edge", Name: fmt.Sprintf("secret-%d", i)}
	return map[api.Key]kube.Value{k: &kube.Secret{Content: content}}, nil
}

// all returns the Secrets of all hosts.
func (s *gatewaySecrets) all() (map[api.Key]kube.Value, error) {
	out := map[api.Key]kube.Value{}
	for i := range gatewayHosts {
		one, err := s.secret(i)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, one)
	}
	return out, nil
}

// rotations returns n new versions of Secrets, each of another host.
func (s *gatewaySecrets) rotations(n int) (list []gatewayEdit, err error) {
	for i := range n {
		values, err := s.secret(i)
		if err != nil {
			return nil, err
		}
		list = append(list, gatewayEdit{values: values, of: resource.Secret})
	}
	return list, nil
}

// gatewayCaller is who the gateways are.
func gatewayCaller(p *plane) {
	p.caller = identity.Caller{Identity: identity.Identity{TrustDomain: "cluster.local", Namespace: "edge", ServiceAccount: "front"}}
}

// secretName is the name by which a gateway asks for the certificate of a host.
func secretName(i int, onDemand string) string {
	if onDemand == "true" {
		return gatewayHost(i)
	}
	return fmt.Sprintf("kubernetes://secret-%d", i)
}
