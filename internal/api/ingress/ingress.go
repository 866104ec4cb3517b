// Package ingress has the specs of the kinds Ingress and IngressClass of Kubernetes, as messages that documents are read into, and as
// plain values.
//
// Kubernetes has no protobuf messages for its kinds that this module could use. Descriptors are made here instead, so that the
// documents of these kinds are read, compared and checked like all others. The descriptors have the field names of the API
// networking.k8s.io/v1. The package has no goroutines.
package ingress

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Controller is the controller of the IngressClasses whose Ingresses the mesh serves.
const Controller = "istio.io/ingress-controller"

// ClassAnnotation is set on an Ingress. It names the class of controllers that serve it, and goes before spec.ingressClassName.
const ClassAnnotation = "kubernetes.io/ingress.class"

// DefaultAnnotation is "true" on the IngressClass of Ingresses that name none.
const DefaultAnnotation = "ingressclass.kubernetes.io/is-default-class"

// The names of the kinds.
const (
	Kind      = "Ingress"
	ClassKind = "IngressClass"
)

// The types of paths.
const (
	Exact                  = "Exact"
	Prefix                 = "Prefix"
	ImplementationSpecific = "ImplementationSpecific"
)

// Spec is the spec of an Ingress.
type Spec struct {
	IngressClassName string
	DefaultBackend   *Backend
	TLS              []TLS
	Rules            []Rule
}

// TLS is a certificate for some hosts.
type TLS struct {
	Hosts      []string
	SecretName string
}

// Rule has the paths of a host. Without a host it is for all hosts.
type Rule struct {
	Host string
	HTTP *struct{ Paths []Path }
}

// Path leads the requests for a path to a backend.
type Path struct {
	Path, PathType string
	Backend        *Backend
}

// Backend is a port of a Service, or a resource of another kind.
type Backend struct {
	Service *struct {
		Name string
		Port *struct {
			Name   string
			Number uint32
		}
	}
	Resource *struct{ Kind, Name string }
}

// Class is the spec of an IngressClass.
type Class struct{ Controller string }

// fields describes the messages: for each its fields, with their type. A star after the type means a list.
const fields = `
IngressSpec: ingressClassName string, defaultBackend Backend, tls TLS*, rules Rule*
TLS: hosts string*, secretName string
Rule: host string, http HTTP
HTTP: paths Path*
Path: path string, pathType string, backend Backend
Backend: service Service, resource Resource
Service: name string, port Port
Port: name string, number uint32
Resource: apiGroup string, kind string, name string
IngressClassSpec: controller string, parameters Parameters
Parameters: apiGroup string, kind string, name string, scope string, namespace string
`

// messages are the descriptors, by the names in fields.
var messages = sync.OnceValue(func() protoreflect.MessageDescriptors {
	const name = "pilot.ingress"
	file := &descriptorpb.FileDescriptorProto{Name: proto.String(name), Package: proto.String(name), Syntax: proto.String("proto3")}
	for line := range strings.SplitSeq(strings.TrimSpace(fields), "\n") {
		message, list, _ := strings.Cut(line, ": ")
		m := &descriptorpb.DescriptorProto{Name: &message}
		for i, field := range strings.Split(list, ", ") {
			m.Field = append(m.Field, describe(name, field, int32(i+1)))
		}
		file.MessageType = append(file.MessageType, m)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(fmt.Sprintf("ingress: the table of fields is wrong: %v", err)) // every test notices
	}
	return d.Messages()
})

// describe returns the descriptor of one field of the table.
func describe(of, text string, number int32) *descriptorpb.FieldDescriptorProto {
	name, typ, _ := strings.Cut(text, " ")
	f := &descriptorpb.FieldDescriptorProto{Name: &name, JsonName: &name, Number: &number}
	f.Label = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
	typ, repeated := strings.CutSuffix(typ, "*")
	if repeated {
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	switch typ {
	case "string":
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
	case "uint32":
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_UINT32.Enum()
	default:
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
		f.TypeName = proto.String("." + of + "." + typ)
	}
	return f
}

// NewSpec returns an empty message for the spec of an Ingress.
func NewSpec() *dynamicpb.Message { return dynamicpb.NewMessage(messages().ByName("IngressSpec")) }

// NewClass returns an empty message for the spec of an IngressClass.
func NewClass() *dynamicpb.Message {
	return dynamicpb.NewMessage(messages().ByName("IngressClassSpec"))
}

// SpecOf returns the value of a message of NewSpec.
func SpecOf(m *dynamicpb.Message) (s Spec) {
	read(m, &s)
	return s
}

// ClassOf returns the value of a message of NewClass.
func ClassOf(m *dynamicpb.Message) (c Class) {
	read(m, &c)
	return c
}

// read fills a value from the JSON form of a message. The values have the same fields, and a message always has such a form, so no
// error is possible but by a mistake in this file, which leaves the value empty.
func read(m *dynamicpb.Message, into any) {
	data, err := protojson.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		panic(fmt.Sprintf("ingress: %T cannot be read from its message: %v", into, err))
	}
}
