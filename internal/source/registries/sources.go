package registries

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
)

// Sharing returns a sink that passes each batch on, and calls UseMesh with the mesh configuration that a batch contains.
func Sharing(to source.Sink, with *Source) source.Sink { return sharing{to, with} }

type sharing struct {
	source.Sink
	with *Source
}

// Apply implements source.Sink.
func (s sharing) Apply(b source.Batch) {
	mesh := b.Mesh
	s.Sink.Apply(b)
	if mesh != nil {
		s.with.UseMesh(mesh)
	}
}

// fromMesh returns the entries that configSources of a mesh configuration describe, and a Problem for each that cannot be used. taken reports
// whether another entry has a name.
func fromMesh(m *meshconfig.MeshConfig, taken func(name string) bool) (entries []Entry, problems []api.Problem) {
	names := map[string]bool{}
	for i, s := range m.GetConfigSources() {
		field := fmt.Sprintf("configSources[%d]", i)
		e, err := sourceEntry(s)
		if err == nil {
			if e.Name = MCP; i > 0 {
				e.Name = MCP + "-" + e.Addresses[0]
			}
			if taken(e.Name) || names[e.Name] {
				err = fmt.Errorf("name: there is another registry %q; give the entry of the registries file another name, or write each address once", e.Name)
			}
		}
		if err == nil {
			err = errors.Join(e.complete()...)
		}
		if err != nil {
			problems = append(problems, api.Problem{
				Position: api.Position{File: "mesh configuration"}, Severity: api.Warning, Code: "config-source", Field: field,
				Reason: fmt.Sprintf("it is not read: %v", err),
			})
			continue
		}
		names[e.Name] = true
		entries = append(entries, e)
	}
	return entries, problems
}

// sourceEntry returns the entry that is equivalent to a config source.
func sourceEntry(s *meshconfig.ConfigSource) (e Entry, err error) {
	u, err := url.Parse(s.GetAddress())
	if err != nil || u.Scheme != "xds" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return e, fmt.Errorf("address: %q is no address of an MCP server; write xds://HOST:PORT. Files are read with --configDir, and a cluster with --kubeconfig, in the place of fs:// and k8s://", s.GetAddress())
	}
	e = Entry{Type: MCP, Addresses: []string{u.Host}}
	t := s.GetTlsSettings()
	switch t.GetMode() {
	case networking.ClientTLSSettings_DISABLE:
		return e, nil
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		return e, errors.New("tlsSettings.mode: ISTIO_MUTUAL cannot be used here; write MUTUAL, and name the files with clientCertificate, privateKey and caCertificates")
	case networking.ClientTLSSettings_MUTUAL:
		if t.GetClientCertificate() == "" || t.GetPrivateKey() == "" {
			return e, errors.New("tlsSettings: MUTUAL needs clientCertificate and privateKey")
		}
	}
	if t.GetCredentialName() != "" {
		return e, errors.New("tlsSettings.credentialName: it cannot be used here; name files")
	}
	e.TLS = &TLSFiles{
		CAFile: t.GetCaCertificates(), CertFile: t.GetClientCertificate(), KeyFile: t.GetPrivateKey(), SNI: t.GetSni(),
		InsecureSkipVerify: t.GetInsecureSkipVerify().GetValue(), Names: t.GetSubjectAltNames(),
	}
	return e, nil
}
