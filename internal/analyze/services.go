package analyze

import (
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// service is what is read of a Service of Kubernetes, or of a list of them.
type service struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Ports []struct {
			Name        string `json:"name"`
			Port        uint32 `json:"port"`
			Protocol    string `json:"protocol"`
			AppProtocol string `json:"appProtocol"`
		} `json:"ports"`
	} `json:"spec"`
	Items []service `json:"items"`
}

// services notes the Services of a file, so that rules for them are not said to lead nowhere. What they select is not known.
func (a *Analysis) services(name string, data []byte) {
	texts, refused := api.Split(name, data)
	if refused != nil {
		return
	}
	for _, t := range texts {
		var s service
		if !strings.Contains(string(t.Bytes()), "Service") || yaml.Unmarshal(t.Bytes(), &s) != nil {
			continue
		}
		for _, one := range append(s.Items, s) {
			if one.APIVersion == "v1" && one.Kind == "Service" && one.Metadata.Name != "" {
				a.known = append(a.known, one)
			}
		}
	}
}

// aboutService reports whether a problem says that a Service is ignored, which it is not here.
func aboutService(p api.Problem) bool {
	return p.Code == "kind-unsupported" && strings.HasPrefix(p.Reason, `"Service" is a kind of Kubernetes`)
}

// declarations returns objects that declare the hosts and ports of the Services, and nothing else. A Service whose host a document of the
// mesh declares as well has none.
func (a *Analysis) declarations(domain string) (list []*api.Object) {
	for i, s := range a.known {
		namespace := s.Metadata.Namespace
		if namespace == "" {
			namespace = api.DefaultNamespace
		}
		spec := &networking.ServiceEntry{
			Hosts:      []string{mesh.FullHost(s.Metadata.Name, namespace, domain)},
			Addresses:  []string{fmt.Sprintf("100::%x", i+1)}, // of a block that nobody has, so that no Service takes the address of another
			Resolution: networking.ServiceEntry_NONE,          // its endpoints are somewhere else
		}
		if to := s.Metadata.Annotations["networking.istio.io/exportTo"]; to != "" {
			spec.ExportTo = strings.Split(strings.ReplaceAll(to, " ", ""), ",")
		}
		for _, p := range s.Spec.Ports {
			spec.Ports = append(spec.Ports, &networking.ServicePort{Number: p.Port, Name: p.Name, Protocol: protocolOf(p.Name, p.Protocol, p.AppProtocol)})
		}
		o, err := api.Object{Key: api.Key{Namespace: namespace, Name: s.Metadata.Name + ofService}, Spec: spec}.Seal()
		if err == nil {
			list = append(list, o)
		}
	}
	return list
}

// ofService ends the names of declarations of Services.
const ofService = ".service"

// renaming replaces the names of declarations by those of their Services in messages.
func renaming(declared []*api.Object) *strings.Replacer {
	var pairs []string
	for _, o := range declared {
		pairs = append(pairs, o.Key.String(), "Service "+o.Namespace+"/"+strings.TrimSuffix(o.Name, ofService))
	}
	return strings.NewReplacer(pairs...)
}

// protocolOf is the protocol of a port, by appProtocol or by the beginning of its name; empty if neither says it.
func protocolOf(name, transport, application string) string {
	if transport == "UDP" {
		return "UDP"
	}
	if application != "" {
		_, last, found := strings.Cut(application, "/")
		if !found {
			last = application
		}
		switch last {
		case "h2c":
			return "HTTP2"
		case "ws":
			return "HTTP"
		case "wss":
			return "HTTPS"
		}
		name = last
	}
	if _, known := mesh.ParseProtocol(name); known {
		return name
	}
	if first, _, _ := strings.Cut(name, "-"); first != "" {
		if strings.HasPrefix(name, "grpc-web") {
			first = "grpc-web"
		}
		if _, known := mesh.ParseProtocol(first); known {
			return first
		}
	}
	return ""
}
