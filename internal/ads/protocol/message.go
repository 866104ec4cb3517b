package protocol

import (
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxMessage is the size in bytes above which a response is split, if the protocol allows several. When many clients
	// connect at once, small writes need less memory, and they cost half the memory traffic of one large write.
	maxMessage = 256 << 10
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

	resources []*resource.Resource
	removed   []string
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

// writer builds the messages of one type.
type writer struct {
	variant      Variant
	typ          resource.Type
	version      string
	controlPlane string
}

func (w *writer) start() *Message {
	b := make([]byte, 0, 128+len(w.controlPlane))
	b = appendString(b, fieldVersion, w.version)
	b = appendString(b, fieldURL, w.typ.URL())
	if w.controlPlane != "" {
		field := protowire.Number(fieldSotwControlPlane)
		if w.variant == Delta {
			field = fieldDeltaControlPlane
		}
		b = appendString(b, field, string(appendString(nil, fieldIdentifier, w.controlPlane)))
	}
	return &Message{Type: w.typ, Parts: [][]byte{b}, Size: len(b)}
}

// sealPart completes a message that another one follows. Agents see that in the version of a delta response; the last value of a field counts.
func (w *writer) sealPart(m *Message) *Message {
	if w.variant == Delta {
		version := appendString(nil, fieldVersion, w.version+"+")
		m.Parts, m.Size = append(m.Parts, version), m.Size+len(version)
	}
	return m.seal()
}

func (m *Message) add(r *resource.Resource, v Variant) {
	if r.Size() == 0 {
		return // Only the name is known: the client said that it has it.
	}
	if v == Delta {
		m.Parts = r.AppendDelta(m.Parts)
		m.Size += r.Size()
	} else {
		m.Parts = r.AppendSotW(m.Parts)
		m.Size += r.SizeSotW()
	}
	m.Resources++
	m.resources = append(m.resources, r)
}

// maxHead is an upper bound for the tag and the length of a removed name, in bytes.
const maxHead = 8

// remove adds a name to removed_resources. Only the delta variant has that field.
func (m *Message) remove(name string) {
	field := appendString(nil, fieldDeltaRemoved, name)
	m.Parts = append(m.Parts, field)
	m.Size += len(field)
	m.Removed++
	m.removed = append(m.removed, name)
}

// seal completes a message. It copies a small one into one buffer, which is cheaper to send to 500 streams than a list of
// buffers.
func (m *Message) seal() *Message {
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

// delta makes the responses of a delta transition, with the removals last. If mustRespond is set, it makes a response
// even if that is empty.
func (w *writer) delta(put []*resource.Resource, removed []string, mustRespond bool) []*Message {
	if len(put)+len(removed) == 0 && !mustRespond {
		return nil
	}
	out, m := w.split(put)
	for _, n := range removed {
		if m.Resources+m.Removed > 0 && m.Size+len(n)+maxHead > maxMessage {
			out, m = append(out, w.sealPart(m)), w.start()
		}
		m.remove(n)
	}
	return append(out, m.seal())
}

// partial makes the responses of a State-of-the-World transition of a type whose responses need not contain all
// resources.
func (w *writer) partial(put []*resource.Resource, mustRespond bool) []*Message {
	if len(put) == 0 && !mustRespond {
		return nil
	}
	out, m := w.split(put)
	return append(out, m.seal())
}

// whole makes one response with all resources. State-of-the-World requires that for types with a wildcard.
func (w *writer) whole(list []*resource.Resource, removed []string) []*Message {
	m := w.start()
	m.removed = removed // The response does not name them. The client removes resources missing from the list.
	for _, r := range list {
		m.add(r, w.variant)
	}
	return []*Message{m.seal()}
}

// split distributes resources over messages of at most maxMessage bytes. It returns the sealed messages and the last one,
// to which more can be added.
func (w *writer) split(put []*resource.Resource) ([]*Message, *Message) {
	var out []*Message
	m := w.start()
	var y yielder
	for _, r := range put {
		y.step()
		size := r.Size()
		if w.variant == StateOfTheWorld {
			size = r.SizeSotW()
		}
		if m.Resources > 0 && m.Size+size > maxMessage {
			out, m = append(out, w.sealPart(m)), w.start()
		}
		m.add(r, w.variant)
	}
	return out, m
}

// revision is the system version in responses: the number of the commit that the state was computed from.
func revision(s *resource.State) string {
	if s == nil {
		return "0"
	}
	return strconv.FormatUint(uint64(s.Revision), 10)
}
