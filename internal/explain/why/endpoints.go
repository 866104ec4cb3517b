package why

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// noEndpoints adds the reasons why a cluster has no endpoints.
func (i *inquiry) noEndpoints(s hostSeen, port uint32, subset string) {
	list := i.Queries.Services.Endpoints(i.r, s.service, port)
	if len(list) == 0 {
		for _, declaration := range s.service.Declarations {
			if _, ok := s.service.PortOf(declaration, port); ok {
				i.addNothingSelected(declaration.Object)
			}
		}
		return
	}
	by := s.service.Declarations[0].Object
	if ill := count(list, func(e mesh.PortEndpoint) bool { return e.Health != mesh.Healthy }); ill == len(list) {
		i.addReason(by, "see what the health checks of its workloads say", "none of its %d endpoints is healthy", len(list))
		return
	}
	if usable := count(list, mesh.PortEndpoint.Dialable); usable == 0 {
		i.addReason(by, "give IP addresses, or let resolution be DNS", "none of its %d endpoints has an IP address and a port (the first is %q)", len(list), list[0].Address)
		return
	}
	labels := i.subsetLabels(s, subset)
	if fit := count(list, func(e mesh.PortEndpoint) bool { return e.Has(labels) }); fit == 0 {
		i.addReason(i.subsetRule(s, subset), "", "none of the %d endpoints of %s has the labels of subset %q: %s", len(list), s.host, subset, mesh.FormatLabels(labels))
		return
	}
	i.addReason(by, "", "none of its %d endpoints can be used", len(list))
}

func count(list []mesh.PortEndpoint, fits func(mesh.PortEndpoint) bool) (n int) {
	for _, e := range list {
		if fits(e) {
			n++
		}
	}
	return n
}

// subsetLabels are the labels of a subset.
func (i *inquiry) subsetLabels(s hostSeen, subset string) map[string]string {
	policy, _ := i.Queries.Rules.Policy.Get(i.r, s.view)
	if policy != nil {
		for _, is := range policy.Subsets {
			if is.Name == subset {
				return is.Labels
			}
		}
	}
	return nil
}

// subsetRule is the object that declares a subset.
func (i *inquiry) subsetRule(s hostSeen, subset string) api.Key {
	policy, _ := i.Queries.Rules.Policy.Get(i.r, s.view)
	if policy == nil {
		return api.Key{}
	}
	for _, k := range policy.Objects {
		if rule, ok := i.Tables.DestinationRules.Peek(k); ok {
			for _, has := range rule.Spec.Subsets {
				if has.Name == subset {
					return k
				}
			}
		}
	}
	return api.Key{}
}

// addNothingSelected adds the reason why one declaration of a service has no endpoints.
func (i *inquiry) addNothingSelected(k api.Key) {
	e, ok := i.Tables.Endpoints.Peek(k)
	switch {
	case !ok:
		return
	case k.Kind == kube.KindService:
		i.addReason(k, "", "its endpoint slices have no endpoint whose pod is known, and no WorkloadEntry of namespace %s has the labels of its selector", k.Namespace)
		return
	case len(e.Selector) == 0:
		i.addReason(k, "add spec.endpoints or spec.workloadSelector", "it has neither endpoints nor a workloadSelector")
		return
	}
	i.addReason(k, "", "no WorkloadEntry of namespace %s has the labels of its workloadSelector: %s", k.Namespace, mesh.FormatLabels(e.Selector))
	i.addNearMisses(k.Namespace, e.Selector)
}

// addNearMisses adds the WorkloadEntries that a selector was probably meant for.
func (i *inquiry) addNearMisses(namespace string, selector map[string]string) {
	type miss struct {
		key  api.Key
		text string
	}
	var list []miss
	for k := range i.havingSome(selector) {
		w, _ := i.Tables.Workloads.Peek(k)
		lacks := lacking(selector, w.Labels)
		switch {
		case k.Namespace != namespace && len(lacks) == 0:
			list = append(list, miss{k, fmt.Sprintf("it has these labels, but a selector finds workloads of its own namespace only, which is %s", namespace)})
		case k.Namespace == namespace && len(lacks) > 0:
			list = append(list, miss{k, "it has some of the labels, but not " + strings.Join(lacks, ", ")})
		}
	}
	slices.SortFunc(list, func(a, b miss) int { return a.key.Compare(b.key) })
	for _, m := range list[:min(len(list), maxReasons)] {
		i.addReason(m.key, "", "%s", m.text)
	}
}

// havingSome returns the WorkloadEntries of all namespaces that have at least one of the labels of a selector.
func (i *inquiry) havingSome(selector map[string]string) map[api.Key]bool {
	found := map[api.Key]bool{}
	for _, l := range mesh.SortedLabels(selector) {
		for k := range i.Tables.WorkloadsByLabel.Peek(selected.LabelIn{Label: l}).All() {
			found[k] = true
		}
	}
	return found
}

// lacking lists the labels of a selector that labels do not have.
func lacking(selector map[string]string, labels mesh.Labels) []string {
	var list []string
	for _, l := range mesh.SortedLabels(selector) {
		if !labels.Has(l) {
			list = append(list, l.String())
		}
	}
	return list
}
