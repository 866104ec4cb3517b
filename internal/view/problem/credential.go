package problem

import (
	"github.com/pilotmesh/pilot/internal/api/destination"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// serverCredentials warns of credentials of the servers of a Gateway that no extension provider serves.
func (f *findings) serverCredentials() {
	row, ok := f.q.tables.Gateways.Servers.Get(f.r, f.key)
	if !ok {
		return
	}
	set := scope.Set{Namespace: f.key.Namespace}
	for i, s := range row.Servers {
		if i == maxChecked {
			return
		}
		if s.TLS == nil {
			continue
		}
		for _, name := range s.TLS.Credentials {
			f.secretService(s.Field+".tls", set, name)
		}
		f.secretService(s.Field+".tls.caCertCredentialName", set, s.TLS.RootsCredential)
	}
}

// clientCredentials warns of credentials of a DestinationRule that no extension provider serves. The clients of a rule without a selector are gateways
// of all namespaces, so they must all see the service of the provider.
func (f *findings) clientCredentials(rule *state.DestinationRule) {
	var set scope.Set
	if len(rule.Selector) > 0 {
		set.Namespace = f.key.Namespace
	}
	for name := range destination.Credentials(rule.Spec) {
		f.secretService("spec", set, name)
	}
}

func (f *findings) secretService(at string, set scope.Set, credential string) {
	if _, named, trouble := f.q.scope.SecretService(f.r, set, credential); named && trouble != "" {
		f.fail("credential-no-provider", at, "no service serves the credential %q, so connections that need it are refused: %s; correct extensionProviders in the mesh configuration, or the name",
			credential, trouble)
	}
}
