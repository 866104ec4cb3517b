// Package response encodes the responses of a stream: resources that are encoded already, and the fields around them. It divides a response that is too
// large, and makes the buffers that all streams share. A message does not change once it is sealed. The package starts no goroutines.
package response

import (
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// MaxSize is the size in bytes above which a response is split, if the protocol allows several. When many clients
	// connect at once, small writes need less memory, and they cost half the memory traffic of one large write.
	MaxSize = 256 << 10
	// bigMessage is a size in bytes. Only a few streams at a time write larger messages (package gate). Smaller messages
	// are copied into one buffer.
	bigMessage = 64 << 10
)

// Field numbers of DiscoveryResponse and DeltaDiscoveryResponse. In both, resources is 2, type_url is 4 and nonce is 5.
const (
	fieldVersion           = 1 // version_info, system_version_info
	fieldURL               = 4
	fieldNonce             = 5
	fieldSotwControlPlane  = 6
	fieldDeltaRemoved      = 6
	fieldDeltaControlPlane = 7
	fieldIdentifier        = 1 // of ControlPlane
)

// Message is a response without its nonce. Streams share it, so it must not be changed once it is sealed.
type Message struct {
	// Type is the type of the resources.
	Type resource.Type
	// Parts are the encoded response.
	Parts [][]byte
	// Size is the length of all parts in bytes.
	Size int
	// Resources and Removed count the resources and the removed names in the response.
	Resources int
	Removed   int
	// Buffers are Parts in the form that gRPC takes. They are set when the message is sealed.
	Buffers mem.BufferSlice

	// Content are the resources that a NACK of the message may be about, and Names the names that the client no longer has.
	Content []*resource.Resource
	Names   []string
}

// Big reports whether the message is so large that only a few streams at a time may write one.
func (m *Message) Big() bool { return m.Size > bigMessage }

// NonceField is the encoded nonce. It is appended to a message to complete the response.
func NonceField(nonce string) []byte {
	b := make([]byte, 0, 2+len(nonce))
	return appendString(b, fieldNonce, nonce)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

// Writer builds the messages of one type.
type Writer struct {
	Variant      request.Variant
	Type         resource.Type
	Version      string
	ControlPlane string
}

// Start begins a message with the fields that precede the resources.
func (w *Writer) Start() *Message {
	b := make([]byte, 0, 128+len(w.ControlPlane))
	b = appendString(b, fieldVersion, w.Version)
	b = appendString(b, fieldURL, w.Type.URL())
	if w.ControlPlane != "" {
		field := protowire.Number(fieldSotwControlPlane)
		if w.Variant == request.Delta {
			field = fieldDeltaControlPlane
		}
		b = appendString(b, field, string(appendString(nil, fieldIdentifier, w.ControlPlane)))
	}
	return &Message{Type: w.Type, Parts: [][]byte{b}, Size: len(b)}
}

// sealPart completes a message that another one follows. Agents see that in the version of a delta response; the last value of a field counts.
func (w *Writer) sealPart(m *Message) *Message {
	if w.Variant == request.Delta {
		version := appendString(nil, fieldVersion, w.Version+"+")
		m.Parts, m.Size = append(m.Parts, version), m.Size+len(version)
	}
	return m.Seal()
}

// Add adds a resource.
func (m *Message) Add(r *resource.Resource, v request.Variant) {
	if r.Size() == 0 {
		return // Only the name is known: the client said that it has it.
	}
	if v == request.Delta {
		m.Parts = r.AppendDelta(m.Parts)
		m.Size += r.Size()
	} else {
		m.Parts = r.AppendSotW(m.Parts)
		m.Size += r.SizeSotW()
	}
	m.Resources++
	m.Content = append(m.Content, r)
}

// maxHead is an upper bound for the tag and the length of a removed name, in bytes.
const maxHead = 8

// Remove adds a name to removed_resources. Only the delta variant has that field.
func (m *Message) Remove(name string) {
	field := appendString(nil, fieldDeltaRemoved, name)
	m.Parts = append(m.Parts, field)
	m.Size += len(field)
	m.Removed++
	m.Names = append(m.Names, name)
}

// AddAbsent ends the demand for a virtual host that does not exist. A removal would let the request wait.
func (m *Message) AddAbsent(name string) {
	part := resource.AppendAbsent(nil, name)
	m.Parts, m.Size, m.Resources = append(m.Parts, part), m.Size+len(part), m.Resources+1
}

// Seal completes a message. It copies a small one into one buffer, which is cheaper to send to 500 streams than a list of
// buffers.
func (m *Message) Seal() *Message {
	if !m.Big() && len(m.Parts) > 1 {
		b := make([]byte, 0, m.Size)
		for _, p := range m.Parts {
			b = append(b, p...)
		}
		m.Parts = [][]byte{b}
	}
	m.Buffers = make(mem.BufferSlice, len(m.Parts))
	for i, p := range m.Parts {
		m.Buffers[i] = mem.SliceBuffer(p)
	}
	return m
}

// Delta makes the responses of a delta transition, with the removals last. If mustRespond is set, it makes a response
// even if that is empty.
func (w *Writer) Delta(put []*resource.Resource, removed []string, mustRespond bool) []*Message {
	if len(put)+len(removed) == 0 && !mustRespond {
		return nil
	}
	out, m := w.split(put)
	for _, n := range removed {
		if m.Resources+m.Removed > 0 && m.Size+len(n)+maxHead > MaxSize {
			out, m = append(out, w.sealPart(m)), w.Start()
		}
		m.Remove(n)
	}
	return append(out, m.Seal())
}

// Partial makes the responses of a State-of-the-World transition of a type whose responses need not contain all
// resources.
func (w *Writer) Partial(put []*resource.Resource, mustRespond bool) []*Message {
	if len(put) == 0 && !mustRespond {
		return nil
	}
	out, m := w.split(put)
	return append(out, m.Seal())
}

// Whole makes one response with all resources. State-of-the-World requires that for types with a wildcard.
func (w *Writer) Whole(list []*resource.Resource, removed []string) []*Message {
	m := w.Start()
	m.Names = removed // The response does not name them. The client removes resources missing from the list.
	for _, r := range list {
		m.Add(r, w.Variant)
	}
	return []*Message{m.Seal()}
}

// split distributes resources over messages of at most MaxSize bytes. It returns the sealed messages and the last one,
// to which more can be added.
func (w *Writer) split(put []*resource.Resource) ([]*Message, *Message) {
	var out []*Message
	m := w.Start()
	var y content.Yielder
	for _, r := range put {
		y.Step()
		size := r.Size()
		if w.Variant == request.StateOfTheWorld {
			size = r.SizeSotW()
		}
		if m.Resources > 0 && m.Size+size > MaxSize {
			out, m = append(out, w.sealPart(m)), w.Start()
		}
		m.Add(r, w.Variant)
	}
	return out, m
}

// Revision is the system version in responses: the number of the commit that the state was computed from.
func Revision(s *resource.State) string {
	if s == nil {
		return "0"
	}
	return strconv.FormatUint(uint64(s.Revision), 10)
}
