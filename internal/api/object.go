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

	"github.com/pilotmesh/pilot/internal/api/rules"
	"github.com/pilotmesh/pilot/internal/omap"
)

// Object is one configuration object of a user. It is immutable.
type Object struct {
	Key
	// Created is metadata.creationTimestamp, zero if absent.
	Created time.Time
	// Labels are metadata.labels.
	Labels map[string]string
	// Annotations are those of metadata.annotations that the product acts on.
	Annotations map[string]string
	// Healthy says that status.conditions has a workload's health as good.
	Healthy bool
	// Allocated are the addresses that status.addresses gives to a ServiceEntry's hosts.
	Allocated []Allocated
	// Spec is *ServiceEntry, *WorkloadEntry, *VirtualService, *DestinationRule or *Sidecar of
	// istio.io/api/networking/v1alpha3.
	Spec proto.Message
	// Hash covers all but the position.
	Hash omap.Hash
	// Position is where the object was read.
	Position Position
}

// Allocated is an address that is given to a host of a ServiceEntry, or to each of them if it names none.
type Allocated struct{ Host, Address string }

// Seal completes an object made in code: it takes the kind from the spec's type, sets the default namespace, checks
// the metadata and computes the hash. Nothing the object refers to may be changed afterwards. Whether the spec makes
// sense is for Validate to say.
func (o Object) Seal() (*Object, error) {
	kind, ok := kindOfSpec(o.Spec)
	if !ok || reflect.ValueOf(o.Spec).IsNil() {
		return nil, fmt.Errorf("object %s/%s: no kind has a spec of type %T", o.Namespace, o.Name, o.Spec)
	}
	if o.Kind != "" && o.Kind != kind.Name {
		return nil, fmt.Errorf("object %v: the spec is that of a %s", o.Key, kind.Name)
	}
	o.Kind = kind.Name
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	if reason := cmp.Or(rules.Subdomain(o.Name), rules.Label(o.Namespace)); reason != "" {
		return nil, fmt.Errorf("object %v: %s", o.Key, reason)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		if reason := rules.ObjectLabel(key, o.Labels[key]); reason != "" {
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
	// TrafficDistribution of a ServiceEntry says which endpoints go before others for being near the client.
	TrafficDistribution = "networking.istio.io/traffic-distribution"
	// HealthChecked of a WorkloadEntry says that its health is looked after: it is used once it is healthy.
	HealthChecked = "proxy.istio.io/health-checks-enabled"
)

// rehash sets the hash over what translation may read, from a form of it that is the same in every process.
func (o *Object) rehash() error {
	text := func(b []byte, s string) []byte {
		return append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	var b []byte
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
	if len(o.Annotations) > 0 || o.Healthy || len(o.Allocated) > 0 { // after a byte that no spec begins with: few objects have any of it
		b = strconv.AppendBool(texts(append(b, 0), o.Annotations), o.Healthy)
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
