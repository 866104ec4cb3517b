package client

import (
	"fmt"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Resource is one resource as it was received. It is not changed after that.
type Resource struct {
	Name    string
	Version string // empty in State-of-the-World
	URL     string
	Body    []byte
	Message proto.Message // nil if it cannot be decoded
	TTL     bool
}

// Same reports whether two resources are equal byte by byte.
func (r *Resource) Same(o *Resource) bool {
	return r != nil && o != nil && r.Name == o.Name && string(r.Body) == string(o.Body)
}

// Response is one message from the server.
type Response struct {
	Index        int // in the client's log
	At           time.Time
	URL          string
	Type         Type
	Known        bool // Type is one of ours
	Nonce        string
	Version      string // version_info, or system_version_info
	ControlPlane string
	Resources    []*Resource
	Removed      []string // as it says (delta)
	Size         int

	// The effect on the client: new or changed, sent though equal to the present resource, taken away (in State-of-the-World by absence).
	Put, Again, Gone []string
	Answer           Answer
}

// String shows a response on one line.
func (r *Response) String() string {
	kind := r.URL
	if r.Known {
		kind = r.Type.String()
	}
	s := fmt.Sprintf("%3d %s nonce=%s version=%.12s", r.Index, kind, r.Nonce, r.Version)
	for _, part := range []struct {
		what  string
		names []string
	}{{"put", r.Put}, {"again", r.Again}, {"gone", r.Gone}} {
		switch n := len(part.names); {
		case n > 8:
			s += fmt.Sprintf(" %s=%d names", part.what, n)
		case n > 0:
			s += fmt.Sprintf(" %s=[%s]", part.what, strings.Join(part.names, " "))
		}
	}
	return s + [...]string{"", " (not answered)", " (rejected)"}[r.Answer]
}

// Get returns the resource of a name, nil if the response does not hold it.
func (r *Response) Get(name string) *Resource {
	for _, res := range r.Resources {
		if res.Name == name {
			return res
		}
	}
	return nil
}

// decode reads a response off the wire. Its resources are opened by the checker, which remembers the contents that it has seen.
func decode(v Variant, raw []byte, checker *Checker) (*Response, []Fault, error) {
	r := &Response{Size: len(raw), At: time.Now()}
	var faults []Fault
	if v == SotW {
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			return nil, nil, fmt.Errorf("the response cannot be decoded: %w", err)
		}
		r.URL, r.Nonce, r.Version, r.ControlPlane = m.TypeUrl, m.Nonce, m.VersionInfo, m.GetControlPlane().GetIdentifier()
		for _, a := range m.Resources {
			res := &Resource{}
			faults = append(faults, res.open(a, checker)...)
			r.Resources = append(r.Resources, res)
		}
	} else {
		var m discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			return nil, nil, fmt.Errorf("the response cannot be decoded: %w", err)
		}
		r.URL, r.Nonce, r.Version, r.ControlPlane = m.TypeUrl, m.Nonce, m.SystemVersionInfo, m.GetControlPlane().GetIdentifier()
		r.Removed = m.RemovedResources
		for _, d := range m.Resources {
			res := &Resource{Version: d.Version, TTL: d.Ttl != nil}
			faults = append(faults, res.open(d.Resource, checker)...)
			if res.Name != d.Name {
				faults = append(faults, fault("version/name", "a resource is named %q and says inside that it is %q", d.Name, res.Name))
			}
			res.Name = d.Name
			r.Resources = append(r.Resources, res)
		}
	}
	r.Type, r.Known = ParseType(r.URL)
	return r, faults, nil
}

// open decodes the content of the resource.
func (r *Resource) open(a *anypb.Any, checker *Checker) []Fault {
	if a == nil {
		return []Fault{fault("content/valid", "a resource is empty")}
	}
	if a.MessageIs((*discoveryv3.Resource)(nil)) { // how State-of-the-World says a time to live
		var inner discoveryv3.Resource
		if err := a.UnmarshalTo(&inner); err != nil {
			return []Fault{fault("content/valid", "a wrapped resource cannot be decoded: %v", err)}
		}
		r.TTL = inner.Ttl != nil
		return r.open(inner.Resource, checker)
	}
	r.URL, r.Body = a.TypeUrl, a.Value
	d := checker.open(a.TypeUrl, a.Value)
	r.Message, r.Name = d.message, d.name
	return d.faults
}
