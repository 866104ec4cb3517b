package api

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// Object is one configuration object of a user. It is immutable.
type Object struct {
	Key
	// Created is metadata.creationTimestamp, zero if absent.
	Created time.Time
	// Labels are metadata.labels.
	Labels map[string]string
	// Annotations are the entries of metadata.annotations that the product reads.
	Annotations map[string]string
	// Healthy is true if status.conditions has the condition Healthy, with the status True, and Unhealthy if it has it with another one.
	Healthy, Unhealthy bool
	// Allocated are the addresses that status.addresses allocates to the hosts of a ServiceEntry.
	Allocated []Allocation
	// Substitute is true if the control plane made the object in the place of a refused access policy without a known earlier version.
	Substitute bool
	// Spec is a message of istio.io/api/networking/v1alpha3, of istio.io/api/security/v1beta1, or of package ingress.
	Spec proto.Message
	// Hash covers everything except Position.
	Hash omap.Hash
	// Position is where the object was read.
	Position Position
}

// Allocation is an address that is allocated to a host of a ServiceEntry, or to all its hosts if Host is empty.
type Allocation struct{ Host, Address string }

// Seal completes an object that a program made: it sets the kind by the type of the spec, and the default namespace, checks the
// metadata, and computes the hash. Nothing that the object refers to may be changed afterwards. Seal does not check the spec;
// Validate does.
func (o Object) Seal() (*Object, error) {
	kind, ok := kindOfSpec(o.Spec)
	if !ok || reflect.ValueOf(o.Spec).IsNil() {
		return nil, fmt.Errorf("object %s/%s: no kind has a spec of type %T", o.Namespace, o.Name, o.Spec)
	}
	if o.Kind != "" && o.Kind != kind.Name {
		return nil, fmt.Errorf("object %v: the spec belongs to a %s", o.Key, kind.Name)
	}
	o.Kind = kind.Name
	reason := syntax.Subdomain(o.Name)
	if clusterScoped(o.Kind) {
		o.Namespace = ""
	} else {
		o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
		reason = cmp.Or(reason, syntax.Label(o.Namespace))
	}
	if reason != "" {
		return nil, fmt.Errorf("object %v: %s", o.Key, reason)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		if reason := syntax.ObjectLabel(key, o.Labels[key]); reason != "" {
			return nil, fmt.Errorf("object %v: metadata.labels: %s", o.Key, reason)
		}
	}
	o.Created = o.Created.UTC()
	if err := o.rehash(); err != nil {
		return nil, fmt.Errorf("object %v: %w", o.Key, err)
	}
	return &o, nil
}

// The annotations that the product acts on.
const (
	// TrafficDistribution is set on a ServiceEntry. It decides which endpoints are preferred because they are near the client.
	TrafficDistribution = "networking.istio.io/traffic-distribution"
	// HealthChecked is set on a WorkloadEntry whose health is checked: the endpoint is used only while it is healthy.
	HealthChecked = "proxy.istio.io/health-checks-enabled"
	// DryRun is set on an AuthorizationPolicy that is only tried out: proxies count its decisions without enforcing them.
	DryRun = "istio.io/dry-run"

	// ServedThrough is set on an object that an MCP server has served. Its value lists the control planes through which it came, separated by
	// commas, the server last. It is not read from files and clusters.
	ServedThrough = "pilotmesh.io/served-through"

	// RegisteredBy is set on a WorkloadEntry that a control plane has made for a proxy; its value is the name of the WorkloadGroup.
	// Controller names the replica to which the proxy is, or was, connected. ConnectedAt and DisconnectedAt are since when.
	RegisteredBy   = "istio.io/autoRegistrationGroup"
	Controller     = "istio.io/workloadController"
	ConnectedAt    = "istio.io/connectedAt"
	DisconnectedAt = "istio.io/disconnectedAt"
)

// rehash computes the hash from an encoding of all that translation may read. The encoding is the same in every process.
func (o *Object) rehash() error {
	text := func(b []byte, s string) []byte {
		return append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	var b []byte
	if o.Substitute {
		b = append(b, 0) // the length of a kind is never 0
	}
	b = text(text(text(b, o.Kind), o.Namespace), o.Name)
	b = binary.AppendVarint(binary.AppendVarint(b, o.Created.Unix()), int64(o.Created.Nanosecond()))
	texts := func(b []byte, m map[string]string) []byte {
		b = binary.AppendUvarint(b, uint64(len(m)))
		for _, key := range slices.Sorted(maps.Keys(m)) {
			b = text(text(b, key), m[key])
		}
		return b
	}
	b = texts(b, o.Labels)
	if len(o.Annotations) > 0 || o.Healthy || o.Unhealthy || len(o.Allocated) > 0 { // most objects have none of this; the byte 0, with which no spec begins, precedes it
		b = strconv.AppendBool(texts(append(b, 0), o.Annotations), o.Healthy)
		if o.Unhealthy {
			b = append(b, 0)
		}
		for _, a := range o.Allocated {
			b = text(text(b, a.Host), a.Address)
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, o.Spec)
	if err != nil { // a string that is no UTF-8
		return fmt.Errorf("spec cannot be encoded: %w", err)
	}
	o.Hash = omap.Sum(b)
	return nil
}
