package analyze

import (
	"fmt"
	"iter"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/security/credential"
)

// revocationLists warns of files with revocation lists (caCrl) that Envoy does not take, as far as Read can read them. Where it cannot, they are
// on the hosts of proxies only, like the files with certificates and keys, and nothing is known of them.
func (a *Analysis) revocationLists() (all []api.Problem) {
	if a.Read == nil {
		return nil
	}
	for k, u := range a.usable {
		var list []api.Problem
		for field, name := range revocationFiles(u.object.Spec) {
			content, err := a.Read(name)
			if err != nil {
				continue
			}
			if _, err := credential.RevocationLists(content); err != nil {
				list = append(list, api.Problem{
					Object: k, Severity: api.Warning, Code: "credential-invalid", Field: field,
					Reason: fmt.Sprintf("the file %q, as it is on this machine: %v; a proxy with this file refuses the certificates of all peers", name, err),
				})
			}
		}
		u.document.Locate(list)
		all = append(all, list...)
	}
	return all
}

// revocationFiles yields the paths of revocation lists that count, by their fields.
func revocationFiles(spec any) iter.Seq2[string, string] {
	return func(yield func(field, name string) bool) {
		switch spec := spec.(type) {
		case *networking.DestinationRule:
			if !yieldPolicy("spec.trafficPolicy", spec.GetTrafficPolicy(), yield) {
				return
			}
			for i, s := range spec.GetSubsets() {
				if !yieldPolicy(fmt.Sprintf("spec.subsets[%d].trafficPolicy", i), s.GetTrafficPolicy(), yield) {
					return
				}
			}
		case *networking.Gateway:
			for i, s := range spec.GetServers() {
				if !yieldServer(fmt.Sprintf("spec.servers[%d].tls.caCrl", i), s.GetTls(), yield) {
					return
				}
			}
		case *networking.Sidecar:
			for i, l := range spec.GetIngress() {
				if !yieldServer(fmt.Sprintf("spec.ingress[%d].tls.caCrl", i), l.GetTls(), yield) {
					return
				}
			}
		}
	}
}

// yieldPolicy yields the paths in a traffic policy, and in its settings for ports.
func yieldPolicy(field string, p *networking.TrafficPolicy, yield func(field, name string) bool) bool {
	if !yieldClient(field+".tls.caCrl", p.GetTls(), yield) {
		return false
	}
	for i, of := range p.GetPortLevelSettings() {
		if !yieldClient(fmt.Sprintf("%s.portLevelSettings[%d].tls.caCrl", field, i), of.GetTls(), yield) {
			return false
		}
	}
	return true
}

func yieldClient(field string, t *networking.ClientTLSSettings, yield func(field, name string) bool) bool {
	counts := t.GetMode() == networking.ClientTLSSettings_SIMPLE || t.GetMode() == networking.ClientTLSSettings_MUTUAL
	return !counts || t.GetCaCrl() == "" || yield(field, t.GetCaCrl())
}

func yieldServer(field string, t *networking.ServerTLSSettings, yield func(field, name string) bool) bool {
	counts := t.GetMode() == networking.ServerTLSSettings_MUTUAL || t.GetMode() == networking.ServerTLSSettings_OPTIONAL_MUTUAL
	return !counts || t.GetCaCrl() == "" || yield(field, t.GetCaCrl())
}
