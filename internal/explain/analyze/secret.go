package analyze

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/spelling"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// secret notes the name of a Secret, or of the one that a controller makes of an object of another kind. Its content is not looked at: it may be
// encrypted, or only be known to the controller.
func (a *Analysis) secret(doc *api.Document) {
	var maker struct {
		Spec struct {
			SecretName string `json:"secretName"`
			Target     struct {
				Name string `json:"name"`
			} `json:"target"`
		} `json:"spec"`
	}
	name := doc.Key.Name
	switch doc.Key.Kind {
	case kube.KindSecret, "SealedSecret":
	case "Certificate", "ExternalSecret":
		if json.Unmarshal(doc.Other, &maker) == nil {
			name = cmp.Or(maker.Spec.SecretName, maker.Spec.Target.Name, name)
		}
	default:
		return
	}
	namespace := cmp.Or(doc.Key.Namespace, api.DefaultNamespace)
	a.secrets[namespace] = append(a.secrets[namespace], name)
}

// missingSecrets warns of Secrets that servers of Gateways name and that are not among the Secrets of the namespace of the gateways. If the files have
// none of a namespace, something else makes its Secrets. A control plane knows only the Secrets that proxies ask for, so that its Problems of missing
// ones are about the proxies.
func (a *Analysis) missingSecrets() (all []api.Problem) {
	for k, u := range a.usable {
		spec, ok := u.object.Spec.(*networking.Gateway)
		if !ok || len(a.secrets) == 0 {
			continue
		}
		var list []api.Problem
		for _, namespace := range a.namespacesOf(spec.GetSelector()) {
			for i, s := range spec.GetServers() {
				name, exist := s.GetTls().GetCredentialName(), a.secrets[namespace]
				if name == "" || strings.ContainsAny(name, ":/") || len(exist) == 0 || slices.Contains(exist, name) {
					continue
				}
				hint := ""
				if near := spelling.Meant(name, exist); near != "" {
					hint = "; did you mean " + near + "?"
				}
				list = append(list, api.Problem{
					Object: k, Severity: api.Warning, Code: "credential-missing", Field: fmt.Sprintf("spec.servers[%d].tls.credentialName", i),
					Reason: fmt.Sprintf("there is no Secret %q in namespace %q, where gateways with these labels run: they do not serve the hosts of this server%s", name, namespace, hint),
				})
			}
		}
		u.document.Locate(list)
		all = append(all, list...)
	}
	return all
}

// namespacesOf returns the namespaces of the pods with all labels of a selector; none without a selector, which means any gateway.
func (a *Analysis) namespacesOf(selector map[string]string) []string {
	found := map[string]bool{}
	for k, v := range a.values {
		if pod, ok := v.(*kube.Pod); ok && len(selector) > 0 && mesh.HasAll(pod.Labels, selector) {
			found[k.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
