package registries

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
)

// TestConfigSources: which entries configSources are, and what of them is a Problem.
func TestConfigSources(t *testing.T) {
	tls := func(mode networking.ClientTLSSettings_TLSmode) *networking.ClientTLSSettings {
		return &networking.ClientTLSSettings{Mode: mode, CaCertificates: "ca", Sni: "s", SubjectAltNames: []string{"n"}}
	}
	mutual := tls(networking.ClientTLSSettings_MUTUAL)
	mutual.ClientCertificate, mutual.PrivateKey = "c", "k"
	blind := tls(networking.ClientTLSSettings_SIMPLE)
	blind.InsecureSkipVerify = wrapperspb.Bool(true)
	for name, test := range map[string]struct {
		source []*meshconfig.ConfigSource
		want   string
	}{
		"plain":      {[]*meshconfig.ConfigSource{{Address: "xds://127.0.0.1:1"}}, "mcp 127.0.0.1:1 <nil>"},
		"two":        {[]*meshconfig.ConfigSource{{Address: "xds://127.0.0.1:1"}, {Address: "xds://[::1]:2"}}, "mcp 127.0.0.1:1 <nil>; mcp-[::1]:2 [::1]:2 <nil>"},
		"twice":      {[]*meshconfig.ConfigSource{{Address: "xds://127.0.0.1:1"}, {Address: "xds://127.0.0.1:2"}, {Address: "xds://127.0.0.1:2"}}, "mcp 127.0.0.1:1 <nil>; mcp-127.0.0.1:2 127.0.0.1:2 <nil>; configSources[2] there is another registry"},
		"TLS":        {[]*meshconfig.ConfigSource{{Address: "xds://pilot.test:15012", TlsSettings: tls(networking.ClientTLSSettings_SIMPLE)}}, "mcp pilot.test:15012 &{ca   s false [n]}"},
		"mutual":     {[]*meshconfig.ConfigSource{{Address: "xds://pilot.test:15012", TlsSettings: mutual}}, "mcp pilot.test:15012 &{ca c k s false [n]}"},
		"no keys":    {[]*meshconfig.ConfigSource{{Address: "xds://pilot.test:15012", TlsSettings: tls(networking.ClientTLSSettings_MUTUAL)}}, "configSources[0] MUTUAL needs clientCertificate"},
		"of Istio":   {[]*meshconfig.ConfigSource{{Address: "xds://pilot.test:15012", TlsSettings: tls(networking.ClientTLSSettings_ISTIO_MUTUAL)}}, "configSources[0] write MUTUAL"},
		"blind":      {[]*meshconfig.ConfigSource{{Address: "xds://pilot.test:15012", TlsSettings: blind}}, "configSources[0] must be verified"},
		"no TLS":     {[]*meshconfig.ConfigSource{{Address: "xds://pilot.test:15010"}}, "configSources[0] only be read over TLS"},
		"files":      {[]*meshconfig.ConfigSource{{Address: "fs:///etc"}}, "configSources[0] --configDir"},
		"Kubernetes": {[]*meshconfig.ConfigSource{{Address: "k8s://"}, {Address: "xds://127.0.0.1:1"}}, "configSources[0] --kubeconfig"},
		"no port":    {[]*meshconfig.ConfigSource{{Address: "xds://127.0.0.1"}}, "configSources[0] is not HOST:PORT"},
		"taken":      {[]*meshconfig.ConfigSource{{Address: "xds://127.0.0.1:1"}}, "configSources[0] there is another registry"},
	} {
		entries, problems := fromMesh(&meshconfig.MeshConfig{ConfigSources: test.source}, func(s string) bool { return name == "taken" && s == "mcp" })
		var got []string
		for _, e := range entries {
			got = append(got, fmt.Sprint(e.Name, " ", strings.Join(e.Addresses, " "), " ", e.TLS))
		}
		for _, p := range problems {
			got = append(got, p.Field+" "+p.Reason)
		}
		for part := range strings.SplitSeq(test.want, "; ") {
			if field, reason, ok := strings.Cut(part, " "); !strings.Contains(strings.Join(got, "\n"), part) && (!ok || !strings.HasPrefix(field, "configSources") || len(problems) != 1 || problems[0].Field != field || !strings.Contains(problems[0].Reason, reason)) {
				t.Errorf("%s: got %s, want %s", name, strings.Join(got, "; "), part)
			}
		}
	}
}
