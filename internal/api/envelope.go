package api

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// envelope is everything in a document except the spec: the kind, the metadata and the status.
type envelope struct {
	document.Report
	key     Key
	kind    kind
	labels  map[string]string
	created time.Time

	annotations map[string]string // only annotations that the product reads
	healthy     bool
	unhealthy   bool
	allocated   []Allocation

	badName, badNamespace bool
	other                 bool // the kind is not of Istio
	identified            bool // the product acts on the kind, and the key is valid
}

func readEnvelope(root *document.Value) *envelope {
	e := &envelope{}
	if root.Kind != document.Mapping {
		e.Fail(root.Line, nil, "a document must be a mapping with apiVersion, kind, metadata and spec, not %s", document.Describe(root))
		return e
	}
	e.identify(root)
	if e.kind.class == ignoredKind || e.kind.class == foreignKind {
		// Other programs check the fields of such a document.
		if e.kind.remark != "" {
			e.Warn(root.Line, nil, "%s", e.kind.remark)
			e.Mark("kind-unsupported")
		}
		e.other = e.kind.remark == ""
		meta := root.Get("metadata")
		e.key.Namespace, e.key.Name = meta.Get("namespace").Text(), meta.Get("name").Text()
		return e
	}
	for _, m := range e.Distinct(root.Members, (*document.Path)(nil).Field) {
		switch m.Key {
		case "apiVersion", "kind", "metadata", "spec":
		case "status":
			e.once((*document.Path)(nil).Field(m.Key), m.Value)
		default:
			e.unknown(m, nil, "apiVersion", "kind", "metadata", "spec")
		}
	}
	if needsSpec(e.key.Kind) && root.Get("spec") == nil {
		e.Fail(root.Line, (*document.Path)(nil).Field("spec"), "a %s needs a spec", e.key.Kind)
	}
	e.metadata(root)
	if clusterScoped(e.key.Kind) {
		e.key.Namespace = ""
	}
	e.health(root.Get("status").Get("conditions"))
	if e.key.Kind == "ServiceEntry" {
		e.allocation(root.Get("status").Get("addresses"))
	}
	e.identified = e.kind.class == ownKind && e.key.Name != "" && !e.badName && !e.badNamespace
	return e
}

// health reads the health of a workload from the conditions of its status.
func (e *envelope) health(conditions *document.Value) {
	if conditions == nil {
		return
	}
	for _, c := range conditions.Items {
		if is := c.Get("status"); is != nil && c.Get("type").Text() == "Healthy" {
			e.healthy = strings.EqualFold(is.Scalar, "True")
			e.unhealthy = !e.healthy
		}
	}
}

// allocation reads the addresses that the status of a ServiceEntry allocates to its hosts.
func (e *envelope) allocation(addresses *document.Value) {
	if addresses == nil {
		return
	}
	for i, item := range addresses.Items {
		a := Allocation{strings.ToLower(item.Get("host").Text()), item.Get("value").Text()}
		if ip, err := netip.ParseAddr(a.Address); err != nil || ip.Zone() != "" {
			at := (*document.Path)(nil).Field("status").Field("addresses").At(i).Field("value")
			e.Warn(item.Line, at, "%s is not an IP address: ignored", document.Quote(a.Address))
			continue
		}
		e.allocated = append(e.allocated, a)
	}
}

func (e *envelope) unknown(m document.Member, at *document.Path, known ...string) {
	e.Fail(m.Line, at.Field(m.Key), "%s", document.Unknown("field", m.Key, known))
	e.Mark("field-unknown")
}

// identify reads apiVersion and kind.
func (e *envelope) identify(root *document.Value) {
	version, name := root.Get("apiVersion").Text(), root.Get("kind").Text()
	at := (*document.Path)(nil)
	e.key.Kind = name
	switch {
	case name == "":
		e.Fail(root.LineOf("kind"), at.Field("kind"), "every document needs a kind, for example VirtualService")
	case version == "":
		e.Fail(root.LineOf("apiVersion"), at.Field("apiVersion"), "every document needs an apiVersion, for example %s/v1", networkingGroup)
	default:
		e.kind = kindOf(version, name)
		if e.kind.class == unknownKind {
			e.Fail(root.LineOf(e.kind.field), at.Field(e.kind.field), "%s", e.kind.remark)
			e.Mark("kind-unknown")
		}
	}
}

// metadata reads the metadata. Fields that only Kubernetes uses are accepted and ignored.
func (e *envelope) metadata(root *document.Value) {
	at := (*document.Path)(nil).Field("metadata")
	e.key.Namespace = DefaultNamespace
	meta := root.Get("metadata")
	if meta == nil || meta.Kind == document.Null {
		e.Fail(root.Line, at.Field("name"), "every object needs a name")
		return
	}
	if !e.Expect(at, meta, document.Mapping) {
		return
	}
	named := false
	for _, m := range e.Distinct(meta.Members, at.Field) {
		if m.Value.Kind != document.Null {
			named = named || m.Key == "name"
			e.metadataField(at, m)
		}
	}
	if !named {
		e.Fail(meta.Line, at.Field("name"), "every object needs a name")
	}
}

func (e *envelope) metadataField(at *document.Path, m document.Member) {
	p, v := at.Field(m.Key), m.Value
	switch m.Key {
	case "name":
		e.key.Name = v.Text()
		e.badName = !e.Expect(p, v, document.String) || !e.rule(m.Line, p, syntax.Subdomain(v.Scalar))
	case "namespace":
		if v.Kind == document.String && v.Scalar == "" {
			return // the default
		}
		e.key.Namespace = v.Text()
		e.badNamespace = !e.Expect(p, v, document.String) || !e.rule(m.Line, p, syntax.Label(v.Scalar))
	case "labels":
		e.labels = e.texts(p, v, syntax.ObjectLabel)
	case "annotations":
		all := e.texts(p, v, func(key, _ string) string { return syntax.Annotation(key) })
		e.marks(p, m, all)
		for _, key := range []string{TrafficDistribution, HealthChecked, RegisteredBy, Controller, ConnectedAt, DisconnectedAt, DryRun, ingress.ClassAnnotation, ingress.DefaultAnnotation} {
			text, ok := all[key]
			if ok && e.annotations == nil {
				e.annotations = map[string]string{}
			}
			if ok {
				e.annotations[key] = text
			}
		}
	case "creationTimestamp":
		if !e.Expect(p, v, document.String) {
			return
		}
		t, err := time.Parse(time.RFC3339Nano, v.Scalar)
		if err != nil {
			e.Fail(m.Line, p, "must be a time like 2006-01-02T15:04:05Z, not %s", document.Quote(v.Scalar))
		}
		e.created = t.UTC()
	case "generateName":
		e.Fail(m.Line, p, "names are not generated here; set metadata.name")
	case "uid", "resourceVersion", "selfLink", "deletionTimestamp", "clusterName":
		e.Expect(p, v, document.String)
	case "generation", "deletionGracePeriodSeconds":
		e.Expect(p, v, document.Integer)
	case "ownerReferences", "finalizers", "managedFields":
		e.Expect(p, v, document.List)
		e.once(p, v)
	default:
		e.unknown(m, at, "name", "namespace", "labels", "annotations", "creationTimestamp")
	}
}

// maxAnnotations is how many bytes the annotations of an object may have.
const maxAnnotations = 256 << 10

// internalMark is the beginning of the annotations that control planes set on objects that they make themselves.
const internalMark = "internal.istio.io/"

// marks checks annotations beyond their form.
func (e *envelope) marks(p *document.Path, m document.Member, all map[string]string) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		size += len(key) + len(all[key])
		name, internal := strings.CutPrefix(key, internalMark)
		at := p.Key(key)
		switch {
		case !internal:
		case name == "parents", name == "parent-namespace", name == "webhook-always-reject":
			e.Fail(m.Value.LineOf("["+key+"]"), at, "only a control plane sets this annotation, on objects that it makes itself; remove it")
		default:
			e.Warn(m.Value.LineOf("["+key+"]"), at, "annotations of %s are set by control planes only, and have no effect here; remove it", strings.TrimSuffix(internalMark, "/"))
		}
	}
	if size > maxAnnotations {
		e.Fail(m.Line, p, "the annotations have %d bytes, the limit is %d; remove some", size, maxAnnotations)
	}
}

// once reports keys that are given twice, at any depth, in a part of the document that is not read otherwise.
func (e *envelope) once(p *document.Path, v *document.Value) {
	for i, item := range v.Items {
		e.once(p.At(i), item)
	}
	for _, m := range e.Distinct(v.Members, p.Field) {
		e.once(p.Field(m.Key), m.Value)
	}
}

// rule reports the reason of a broken rule, if there is one. It returns whether there was none.
func (e *envelope) rule(line int, p *document.Path, reason string) bool {
	if reason != "" {
		e.Fail(line, p, "%s", reason)
	}
	return reason == ""
}

// texts reads a map of strings. Each entry must pass check.
func (e *envelope) texts(p *document.Path, v *document.Value, check func(key, text string) string) map[string]string {
	if !e.Expect(p, v, document.Mapping) || len(v.Members) == 0 {
		return nil
	}
	out := make(map[string]string, len(v.Members))
	for _, m := range e.Distinct(v.Members, p.Key) {
		at := p.Key(m.Key)
		if e.Expect(at, m.Value, document.String) {
			out[m.Key] = m.Value.Scalar
			e.rule(m.Line, at, check(m.Key, m.Value.Scalar))
		}
	}
	return out
}
