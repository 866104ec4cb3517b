package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

// received is a resource of a response. name and version are empty in State-of-the-World.
type received struct {
	name, version string
	any           *anypb.Any
}

// decoded is what a resource is.
type decoded struct {
	registries.Object
	// own is true if the object is one of this control plane, which comes back.
	own bool
	// remark is set if the resource is no object. named is true if it is known which one it cannot be: an object that misses in the response is then
	// really missing.
	remark registries.Remark
	named  bool
}

// wrong returns why the server's version cannot be used; empty if it can.
func (d decoded) wrong() string {
	switch {
	case d.remark.Reason != "":
		return d.remark.Place + ": " + d.remark.Reason
	case d.own || d.Object.Object != nil:
		return ""
	}
	for _, p := range d.Problems {
		if p.Severity == api.Error {
			return d.Key.String() + ": " + strings.Join(strings.Fields(p.Field+" "+p.Reason), " ")
		}
	}
	return d.Key.String() + ": it cannot be used"
}

// decode reads a resource. It never fails: what cannot be read is a remark or a Problem.
func (r *reader) decode(kind api.Kind, in received) decoded {
	var m mcpv1.Resource
	if !in.any.MessageIs(&m) {
		return unread(kind, in.name, fmt.Sprintf("it is a message of the type %q, not an istio.mcp.v1alpha1.Resource", clip(in.any.GetTypeUrl())))
	}
	if err := in.any.UnmarshalTo(&m); err != nil {
		return unread(kind, in.name, "it is no encoded Resource: "+plain(err))
	}
	name := m.GetMetadata().GetName()
	if in.name != "" && name != "" && name != in.name {
		return unread(kind, in.name, fmt.Sprintf("its metadata has the name %q", clip(name)))
	}
	if name == "" {
		name = in.name
	}
	key, ok := keyOf(kind, name)
	if !ok {
		d := unread(kind, name, "its name must be NAMESPACE/NAME")
		d.named = name != ""
		return d
	}
	through := m.GetMetadata().GetAnnotations()[api.ServedThrough]
	if r.isOwn(through) {
		return decoded{own: true}
	}
	return decoded{Object: r.object(kind, key, &m, through)}
}

func unread(kind api.Kind, name, reason string) decoded {
	place := kind.Name
	if name != "" {
		place += " " + clip(name)
	}
	return decoded{remark: registries.Remark{Place: place, Reason: reason}, named: name != ""}
}

// isOwn reports whether an object has come through this control plane. The last control plane is the server itself: its name says nothing, because
// control planes that serve each other may both have the name that all have by default.
func (r *reader) isOwn(through string) bool {
	list := strings.Split(through, ",")
	return slices.Contains(list[:len(list)-1], r.ClusterID)
}

// object reads the object in a resource.
func (r *reader) object(kind api.Kind, key api.Key, m *mcpv1.Resource, through string) registries.Object {
	spec, reason := specOf(kind, m.GetBody())
	doc, trouble := r.document(kind, key, m.GetMetadata(), spec)
	out := registries.Object{Key: key}
	if reason == "" {
		reason = trouble
	}
	if doc != nil {
		for _, p := range doc.Problems {
			p.Object, p.Position = key, api.Position{File: r.place}
			if reason == "" {
				out.Problems = append(out.Problems, p)
			}
		}
		if d := doc.Denying; d != nil && d.Key == key {
			d.Position = api.Position{File: r.place}
			out.Denying = d
		}
		if o := doc.Object; o != nil && o.Key == key && reason == "" {
			var err error
			if out.Object, err = r.mark(o, through); err != nil {
				reason = err.Error()
			}
		}
	}
	if reason == "" && out.Object == nil && !api.Failed(out.Problems) {
		reason = "it is read as another object"
	}
	if reason != "" {
		out.Problems = append(out.Problems, api.Problem{Object: key, Position: api.Position{File: r.place}, Severity: api.Error, Code: "syntax", Reason: reason})
	}
	return out
}

// maxThrough is the largest size of the list of control planes through which an object came.
const maxThrough = 4 << 10

// mark notes through which control planes an object came. A server that does not say it has its address as name.
func (r *reader) mark(o *api.Object, through string) (*api.Object, error) {
	if through == "" {
		through = "xds://" + r.entry.Addresses[0]
	}
	if len(through) > maxThrough {
		return nil, fmt.Errorf("the annotation %s has more than %d bytes; control planes serve each other in a ring", api.ServedThrough, maxThrough)
	}
	is := *o
	is.Annotations = maps.Clone(o.Annotations)
	if is.Annotations == nil {
		is.Annotations = map[string]string{}
	}
	is.Annotations[api.ServedThrough] = through
	is.Position = api.Position{File: r.place}
	return is.Seal()
}

// unreadable is the field in the place of a spec that cannot be read. The decoder refuses it in an access policy, whose substitute then denies.
const unreadable = "unreadable"

// specOf returns the spec of an object as JSON; with a reason if it cannot be read.
func specOf(kind api.Kind, body *anypb.Any) (spec map[string]json.RawMessage, reason string) {
	broken := map[string]json.RawMessage{unreadable: json.RawMessage("true")}
	m := kind.NewSpec()
	url := body.GetTypeUrl()
	message := url[strings.LastIndexByte(url, '/')+1:]
	if !sameMessage(string(m.ProtoReflect().Descriptor().FullName()), message) {
		return broken, fmt.Sprintf("its body is a message of the type %q, and not the spec of a %s", clip(url), kind.Name)
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(body.GetValue(), m); err != nil {
		return broken, fmt.Sprintf("its body cannot be decoded as the spec of a %s: %s", kind.Name, plain(err))
	}
	text, err := protojson.Marshal(m)
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return broken, fmt.Sprintf("its body has no form as JSON: %s", plain(err))
	}
	if field := unknownField(m.ProtoReflect()); field != "" {
		spec[field] = json.RawMessage("true") // the decoder decides what that means for the kind
	}
	return spec, ""
}

// maxDepth is the largest nesting depth of a spec.
const maxDepth = 100

// sameMessage reports whether two names of messages differ in the version of the API at most.
func sameMessage(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	if len(x) != len(y) || len(x) < 3 {
		return a == b
	}
	version := len(x) - 2
	x[version] = y[version]
	return slices.Equal(x, y)
}

// unknownField returns the name of a field in a message, or in one below it, that this version of the API does not have; empty if there is none.
func unknownField(m protoreflect.Message) (name string) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return fmt.Sprintf("field%dOf%s", number, m.Descriptor().Name())
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				name = unknownField(v.Message())
				return name == ""
			})
		case f.IsList() && f.Message() != nil:
			for i := 0; i < v.List().Len() && name == ""; i++ {
				name = unknownField(v.List().Get(i).Message())
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			name = unknownField(v.Message())
		}
		return name == ""
	})
	return name
}

// document reads an object as the decoder reads one of an API server.
func (r *reader) document(kind api.Kind, key api.Key, meta *mcpv1.Metadata, spec map[string]json.RawMessage) (doc *api.Document, reason string) {
	metadata := map[string]any{"name": key.Name, "namespace": key.Namespace}
	if t := meta.GetCreateTime(); t != nil && t.CheckValid() != nil {
		reason = "its create_time is no time: " + plain(t.CheckValid())
	} else if t != nil {
		metadata["creationTimestamp"] = t.AsTime().UTC().Format(time.RFC3339Nano)
	}
	if len(meta.GetLabels()) > 0 {
		metadata["labels"] = meta.GetLabels()
	}
	annotations := maps.Clone(meta.GetAnnotations())
	if delete(annotations, api.ServedThrough); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	text, err := json.Marshal(map[string]any{"apiVersion": kind.Group() + "/" + kind.Versions()[0], "kind": kind.Name, "metadata": metadata, "spec": spec})
	if err != nil {
		return nil, plain(err)
	}
	docs := api.DecodeServed(r.place, text)
	if len(docs) != 1 {
		return nil, fmt.Sprintf("it is read as %d documents", len(docs))
	}
	docs[0].Check()
	return &docs[0], reason
}

// plain returns the text of an error of the protobuf module, which differs from process to process in the kind of its spaces.
func plain(err error) string { return strings.Join(strings.Fields(clip(err.Error())), " ") }
