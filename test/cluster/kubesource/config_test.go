package kubesource

import (
	"fmt"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
)

func entry(name, labels, resolution string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, labels: {%[2]s}}
spec: {hosts: [%[1]s.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: %[3]s}
`, name, labels, resolution)
}

// TestConfiguration follows objects of configuration while their definitions come, go and come back.
func TestConfiguration(t *testing.T) {
	p := on(t)
	s := p.start(kubesource.Options{Configuration: true})
	p.definitions()
	p.apply(entry("a", "", "DNS"))
	a, b := p.config("ServiceEntry", "a"), p.config("ServiceEntry", "b")
	s.until("an object of a new definition", s.has(a))
	if spec := s.at(a).Object.Spec.(*networking.ServiceEntry); spec.GetResolution() != networking.ServiceEntry_DNS {
		t.Errorf("spec %v", spec)
	}

	// A value that the definition accepts and our rules refuse.
	p.apply(entry("c", "", "DNS"))
	c := p.config("ServiceEntry", "c")
	s.until("another object", s.has(c))
	p.kubectl("", "patch", "serviceentry", "c", "--type=merge", `-p={"spec": {"hosts": ["no host!"]}}`)
	s.until("its problem", s.problem("ServiceEntry "+p.namespace+"/c"))
	if spec := s.at(c).Object.Spec.(*networking.ServiceEntry); spec.GetHosts()[0] != "c.example.com" {
		t.Error("the last good version is not kept")
	}
	p.apply(entry("b", "", "DNS"))
	s.until("others flow", s.has(b))
	p.kubectl("", "delete", "serviceentry", "c")
	s.until("the malformed object is gone", func() bool { return s.lacks(c)() && !s.problem("/c")() })

	// Revisions and their tags.
	p.apply(entry("r", "istio.io/rev: other", "DNS"))
	p.apply(entry("m", "", "DNS"))
	s.until("a marker", s.has(p.config("ServiceEntry", "m")))
	r := p.config("ServiceEntry", "r")
	if s.now(s.has(r)) {
		t.Error("an object of another revision was passed on")
	}
	tag := `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: tag-%[1]s, labels: {istio.io/tag: %[1]s, istio.io/rev: %[2]s}}
`
	t.Cleanup(func() {
		p.kubectl("", "delete", "mutatingwebhookconfiguration", "tag-other", "--ignore-not-found")
	})
	p.apply(fmt.Sprintf(tag, "other", "default"))
	s.until("an object of a tag", s.has(r))
	p.apply(fmt.Sprintf(tag, "other", "third"))
	s.until("the tag is moved", s.lacks(r))

	p.kubectl("", "delete", "crd", "serviceentries.networking.istio.io")
	s.until("the objects of a removed definition", func() bool { return s.lacks(a)() && s.lacks(b)() })
	p.definitions()
	p.apply(entry("a", "", "DNS"))
	s.until("an object of a definition that is back", s.has(a))
}

const settings = `apiVersion: v1
kind: ConfigMap
metadata: {name: %s}
data:
  %s: |
    %s
`

// TestMesh changes the mesh configuration and with it the selected namespaces.
func TestMesh(t *testing.T) {
	p := on(t)
	p.definitions()
	control := p.namespace
	p.apply(fmt.Sprintf(settings, "base", "mesh", "accessLogFile: /dev/stdout"))
	other := p.newNamespace("other", map[string]string{"env": "dev"})
	p.apply(entry("own", "", "DNS"))
	p.namespace = other
	p.apply(shop)
	p.apply(entry("theirs", "", "DNS"))
	service, theirs := p.registry("Service", "web"), p.config("ServiceEntry", "theirs")
	p.namespace = control
	own := p.config("ServiceEntry", "own")
	s := p.start(kubesource.Options{Config: p.account("base"), Configuration: true, MeshConfigMap: true, NetworksConfigMap: true, SharedMeshConfig: "base"})
	if s.trust() != "cluster.local" || !s.now(s.has(service)) || !s.now(s.has(theirs)) {
		t.Errorf("without a ConfigMap: %q", s.trust())
	}
	p.apply(fmt.Sprintf(settings, "istio", "mesh", "{trustDomain: td1, discoverySelectors: [{matchLabels: {env: prod}}]}"))
	s.until("the namespace is not selected", func() bool { return s.lacks(service)() && s.lacks(theirs)() })
	if s.trust() != "td1" || !s.now(s.has(own)) {
		t.Errorf("mesh %q, or the configuration of the control plane's own namespace is lost", s.trust())
	}
	p.kubectl("", "label", "namespace", other, "env=prod", "--overwrite")
	s.until("the namespace is selected", func() bool { return s.has(service)() && s.has(theirs)() })
	p.kubectl("", "label", "namespace", other, "env=dev", "--overwrite")
	s.until("the namespace is not selected again", s.lacks(service))

	p.apply(fmt.Sprintf(settings, "istio", "mesh", "{trustDomain: [}"))
	s.until("a broken mesh configuration", s.problem("configmap "+control+"/istio"))
	p.apply(fmt.Sprintf(settings, "istio", "mesh", "trustDomain: td2") + "  meshNetworks: '{networks: {n1: {endpoints: [{fromRegistry: c1}], gateways: [{address: 192.0.2.1, port: 15443}]}}}'\n")
	s.until("a good one", func() bool { return s.has(service)() && s.networks == 1 })
	if s.trust() != "td2" || s.now(s.problem("configmap")) {
		t.Errorf("mesh %q, or a problem stays", s.trust())
	}
	p.kubectl("", "delete", "configmap", "istio")
	s.until("it was deleted", s.problem("was deleted"))
	if s.trust() != "td2" || !s.now(func() bool { return s.networks == 1 }) {
		t.Errorf("mesh %q, or the networks are lost", s.trust())
	}
}
