package kube

import (
	"fmt"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// KeptMap returns the name of the ConfigMap, in the namespace of the control plane, with a part of the last good versions of policies about
// access. KeptKey is the key in it.
func KeptMap(part int) string { return fmt.Sprintf("pilot-policies-%d", part) }

// KeptKey is the key of the ConfigMaps with the last good versions of access policies.
const KeptKey = "policies.gz"

// keptPart is the content of one of these ConfigMaps.
type keptPart struct {
	sum      omap.Hash
	versions map[api.Key]*api.Object
	trouble  string
}

// watchKept starts to watch the ConfigMaps with the last good versions of access policies. The leader among the replicas writes them.
func (r *run) watchKept() {
	for i := range kept.Parts {
		of := KeptMap(i)
		t := &table{what: "configmap " + r.o.Namespace + "/" + of, convert: r.keptPart}
		t.merge = func(old, is content) content {
			if old.(*keptPart).sum == is.(*keptPart).sum {
				return old
			}
			return is
		}
		t.changed = func() { r.recallAll(t) }
		r.kept = append(r.kept, t)
		f := filter{namespace: r.o.Namespace, fields: "metadata.name=" + of}
		r.watch(t, r.clients.typed(r.clients.core, "configmaps", f, &core.ConfigMap{}, func() runtime.Object { return &core.ConfigMapList{} }))
	}
}

func (r *run) keptPart(o runtime.Object) content {
	data := o.(*core.ConfigMap).BinaryData[KeptKey]
	p := &keptPart{sum: omap.Sum(data), versions: map[api.Key]*api.Object{}}
	versions, err := kept.Decode(data)
	if err != nil {
		p.trouble = fmt.Sprintf("the last good versions of access policies cannot be read: %v; a policy that is refused now denies all that it is about; correct refused policies", err)
	}
	for _, v := range versions {
		v.Position.File = r.place
		p.versions[v.Key] = v
	}
	return p
}

// recall returns the content to store for a policy: if its present version is refused, with the newer of the last good versions that this
// process and the ConfigMaps have. A version of an earlier, deleted object of the same name does not count.
func (r *run) recall(t *table, n name, c content) content {
	o := c.(*configured)
	if o.good {
		return c
	}
	for _, from := range r.kept {
		for _, part := range from.rows {
			v := part.(*keptPart).versions[t.key(n)]
			if v == nil || !v.Created.Equal(o.created) || v.Position.Generation > o.generation ||
				o.object != nil && o.object.Position.Generation >= v.Position.Generation {
				continue
			}
			is := *o
			is.object = v
			return &is
		}
	}
	return c
}

// recallAll takes in the versions in a ConfigMap of policies whose present version is refused.
func (r *run) recallAll(of *table) {
	trouble := ""
	for _, part := range of.rows {
		trouble = part.(*keptPart).trouble
	}
	r.note("kept/"+of.what, api.Warning, trouble)
	for t := range r.tables {
		if !t.guards() {
			continue
		}
		var changes []change
		for n, c := range t.rows {
			if is := r.recall(t, n, c); is != c {
				t.rows[n] = is
				changes = append(changes, change{n, c, is})
			}
		}
		if len(changes) > 0 {
			r.apply(t, changes)
		}
	}
}

// book notes the versions of policies that are to be kept.
func (r *run) book(t *table, changes []change) {
	if r.o.Policies == nil || !t.guards() {
		return
	}
	for _, c := range changes {
		if is, ok := c.new.(*configured); ok && is.object != nil {
			r.o.Policies.Put(is.object)
		} else {
			r.o.Policies.Drop(t.key(c.name))
		}
	}
}

// booked marks the book as complete once all policies, and all kept versions, have been listed.
func (r *run) booked() {
	if r.o.Policies == nil || !r.synced {
		return
	}
	for _, t := range r.kept {
		if !t.listed {
			return
		}
	}
	r.o.Policies.Complete()
}

// mustList reports whether a control plane without the objects of a table would open closed workloads, so that it must not be ready. A
// kind that is not defined has no objects.
func (r *run) mustList(t *table) bool {
	switch {
	case t == r.namespaces:
		return r.o.Configuration && len(r.selectors) > 0 // which policies count is not known
	case r.settings != nil && (t == r.settings.own || t == r.settings.shared):
		return r.o.MeshConfigMap // the root namespace, selectors and providers of policies are not known
	case t == r.tags && r.tags != nil:
		return r.definesPolicies() // which policies are for this revision is not known
	}
	return t.guards() && r.defined(t)
}

// definesPolicies reports whether a kind of policies is known to be defined.
func (r *run) definesPolicies() bool {
	for t := range r.tables {
		if t.guards() && r.defined(t) {
			return true
		}
	}
	return false
}

// defined reports whether the kind of a table of configuration is known to be defined.
func (r *run) defined(t *table) bool {
	if r.definitions == nil {
		return false
	}
	_, ok := r.definitions.rows[name{"", t.what}]
	return ok
}
