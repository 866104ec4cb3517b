package problem

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/run/safedial"
	"github.com/pilotmesh/pilot/internal/view/extension"
)

// extension warns of an extension that selects no workload, or whose module cannot be fetched.
func (f *findings) extension() {
	t := f.q.tables
	content, ok := t.Extensions.Contents.Get(f.r, f.key)
	if !ok {
		return
	}
	at := "spec."
	if f.key.Kind == api.KindTrafficExtension {
		at = "spec.wasm."
	}
	f.moduleAddress(at+"url", content.Wasm.GetUrl())
	for _, e := range content.Wasm.GetVmConfig().GetEnv() {
		if strings.HasPrefix(e.GetName(), "ISTIO_META_") {
			f.warn("extension-variable", at+"vmConfig.env", "the variable %s is left out: agents keep names that begin with ISTIO_META_ for themselves; choose another name", e.GetName())
		}
	}
	if all := t.Extensions.ForAll; all.Group(f.r, f.key.Namespace).Len() > extension.Max {
		f.warn("limit-exceeded", "", "more than %d extensions apply to all workloads here, and only %d are used: remove some", extension.Max, extension.Max)
	}
	selection, ok := t.Extensions.Selections.Get(f.r, f.key)
	if !ok || selection.Targeted || selection.Labels.Empty() || f.key.Namespace == t.RootNamespace(f.r) {
		return
	}
	f.selectorWithoutWorkload("spec.selector", mesh.LabelMap(selection.Labels), func(id string) bool {
		class, ok := f.q.scope.Class.Get(f.r, id)
		return ok && class.Extensions.Has(f.key)
	})
}

// moduleAddress warns of an address that agents do not connect to.
func (f *findings) moduleAddress(at, address string) {
	if strings.HasPrefix(address, "file://") {
		return
	}
	if !strings.Contains(address, "://") {
		address = "oci://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return // the rules of the object report it
	}
	ip, err := netip.ParseAddr(u.Hostname())
	local := strings.EqualFold(u.Hostname(), "localhost")
	if local || err == nil && safedial.Blocked(ip) {
		f.fail("extension-unreachable", at, "agents do not fetch from %s: it leads to the host itself, or to a service of its cloud; use another server, or a file of the host (file://)", u.Hostname())
	}
}

// proxyConfig warns of a ProxyConfig that an older one overrules.
func (f *findings) proxyConfig() {
	own, ok := f.q.tables.Extensions.ProxyConfigs.Get(f.r, f.key)
	if !ok || len(own.Spec.GetSelector().GetMatchLabels()) > 0 {
		return
	}
	checked := 0
	for k := range f.q.tables.Kinds.Group(f.r, api.KindProxyConfig).All() {
		if checked++; checked > maxChecked {
			return
		}
		if k.Namespace != f.key.Namespace || k == f.key {
			continue
		}
		o, ok := f.q.tables.Extensions.ProxyConfigs.Get(f.r, k)
		if !ok || len(o.Spec.GetSelector().GetMatchLabels()) > 0 {
			continue
		}
		if o.Created < own.Created || o.Created == own.Created && k.Compare(f.key) < 0 {
			f.conflict("proxyconfig-overruled", "spec.selector", "%s is older and has no selector either: this one is not used; merge them", k)
			return
		}
	}
}
