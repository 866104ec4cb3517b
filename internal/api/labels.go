package api

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules"
)

// idleLabel is a label of Istio that has no effect here.
type idleLabel struct {
	key string
	// off are the values that disable the feature, separated by spaces; they need no warning.
	off, reason string
}

const ambient = "ambient mode is not supported yet: only sidecars carry traffic; remove the label, or run a sidecar"

// idleLabels returns the labels to look for on every object and on endpoints.
func idleLabels() []idleLabel {
	return []idleLabel{
		{"istio.io/rev", "default", "there are no revisions here: the object counts whatever its revision is; keep objects of other revisions in another directory"},
		{"istio.io/dataplane-mode", "none", ambient},
		{"istio.io/use-waypoint", "none", ambient},
		{"istio.io/use-waypoint-namespace", "", ambient},
	}
}

// idleLabelsOf warns of labels of an object and of its endpoints that have no effect.
func idleLabelsOf(r *document.Report, o *Object) {
	root := (*document.Path)(nil)
	idleIn(r, root.Field("metadata").Field("labels"), o.Labels)
	spec := root.Field("spec")
	switch s := o.Spec.(type) {
	case *networking.WorkloadEntry:
		idleIn(r, spec.Field("labels"), s.GetLabels())
	case *networking.ServiceEntry:
		for i, e := range s.GetEndpoints() {
			idleIn(r, spec.Field("endpoints").At(i).Field("labels"), e.GetLabels())
		}
		if o.Labels[AutoAllocate] == "true" && len(s.GetAddresses())+len(o.Allocated) == 0 {
			r.Warn(0, root.Field("metadata").Field("labels").Key(AutoAllocate), "addresses are allocated in clusters only, and status.addresses has none; name some in spec.addresses")
		}
	}
}

func idleIn(r *document.Report, at *document.Path, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	for _, l := range idleLabels() {
		if v, ok := labels[l.key]; ok && !slices.Contains(strings.Fields(l.off), v) {
			r.Warn(0, at.Key(l.key), "%s", l.reason)
		}
	}
}

// AutoAllocate is the label that decides whether addresses are allocated to a ServiceEntry.
const AutoAllocate = rules.AutoAllocate

// HostAddresses returns the allocated addresses by host; those under "" are for all hosts. It returns nil if the object has
// addresses in its spec, or disables allocation.
func (o *Object) HostAddresses() map[string][]string {
	spec, ok := o.Spec.(*networking.ServiceEntry)
	if !ok || len(o.Allocated) == 0 || len(spec.GetAddresses()) > 0 || strings.EqualFold(o.Labels[AutoAllocate], "false") ||
		spec.GetResolution() == networking.ServiceEntry_NONE {
		return nil
	}
	out := map[string][]string{}
	for _, a := range o.Allocated {
		out[a.Host] = append(out[a.Host], a.Address)
	}
	maps.DeleteFunc(out, func(host string, _ []string) bool { return strings.HasPrefix(host, "*") })
	return out
}
