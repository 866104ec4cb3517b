package protocol

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxMessage is where responses are cut, if the protocol lets them be cut. Many smaller writes keep the peak of
	// a herd of cold clients low and cost half the memory traffic of one large one.
	maxMessage = 256 << 10
	// bigMessage is the size from which few streams write at a time; below it, a message is copied into one buffer.
	bigMessage = 64 << 10
)

// Field numbers of DiscoveryResponse and DeltaDiscoveryResponse where they differ; resources is 2, type_url is 4 and
// nonce is 5 in both.
const (
	fieldVersion           = 1 // version_info, system_version_info
	fieldURL               = 4
	fieldNonce             = 5
	fieldSotwControlPlane  = 6
	fieldDeltaRemoved      = 6
	fieldDeltaControlPlane = 7
	fieldIdentifier        = 1 // of ControlPlane
)

// Message is a response without its nonce: slices of bytes that streams share. Nobody writes to them.
type Message struct {
	Parts     [][]byte
	Size      int
	Resources int
	Removed   int

	resources []*resource.Resource
	removed   []string
	Buffers   mem.BufferSlice // Parts as gRPC takes them; of a sealed message
}

// Big reports whether the message should pass the gate.
func (m *Message) Big() bool { return m.Size > bigMessage }

// NonceField is the encoded nonce, the last bytes of a response.
func NonceField(nonce string) []byte {
	b := make([]byte, 0, 2+len(nonce))
	return appendString(b, fieldNonce, nonce)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

// writer puts messages together.
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
	return &Message{Parts: [][]byte{b}, Size: len(b)}
}

func (m *Message) add(r *resource.Resource, v Variant) {
	if r.Size() == 0 {
		return // stands for what a client said it has
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

// maxHead is more than what a removed name takes beside itself, in bytes.
const maxHead = 8

// remove says that a name is gone; delta only.
func (m *Message) remove(name string) {
	field := appendString(nil, fieldDeltaRemoved, name)
	m.Parts = append(m.Parts, field)
	m.Size += len(field)
	m.Removed++
	m.removed = append(m.removed, name)
}

// seal ends the making of a message. A small one is copied into one buffer: that is cheaper to send 500 times than a
// list is.
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

// delta makes the responses of a delta transition, removals last. must: one comes even if there is nothing to say.
func (w *writer) delta(put []*resource.Resource, gone []string, must bool) []*Message {
	if len(put)+len(gone) == 0 && !must {
		return nil
	}
	out, m := w.cut(put)
	for _, n := range gone {
		if m.Resources+m.Removed > 0 && m.Size+len(n)+maxHead > maxMessage {
			out, m = append(out, m.seal()), w.start()
		}
		m.remove(n)
	}
	return append(out, m.seal())
}

// parts makes the responses of a State-of-the-World transition of a type whose responses may hold a part.
func (w *writer) parts(put []*resource.Resource, must bool) []*Message {
	if len(put) == 0 && !must {
		return nil
	}
	out, m := w.cut(put)
	return append(out, m.seal())
}

// whole makes the one response that holds the whole list.
func (w *writer) whole(list []*resource.Resource) []*Message {
	m := w.start()
	for _, r := range list {
		m.add(r, w.variant)
	}
	return []*Message{m.seal()}
}

// cut returns the full messages and the open one.
func (w *writer) cut(put []*resource.Resource) ([]*Message, *Message) {
	var out []*Message
	m := w.start()
	var b breath
	for _, r := range put {
		b.take()
		size := r.Size()
		if w.variant == StateOfTheWorld {
			size = r.SizeSotW()
		}
		if m.Resources > 0 && m.Size+size > maxMessage {
			out, m = append(out, m.seal()), w.start()
		}
		m.add(r, w.variant)
	}
	return out, m
}

// revision is what people see as the version of the system: the commit the state was computed from.
func revision(s *resource.State) string {
	if s == nil {
		return "0"
	}
	return strconv.FormatUint(uint64(s.Revision), 10)
}

// A State-of-the-World version stands for all that the client holds of a type: the sum, modulo 2^128, of one hash per
// resource. So it follows a change without looking at the rest, equal contents have equal versions on every stream
// and replica, and the order does not matter. Nothing but people relies on it.

func term(r *resource.Resource) omap.Hash {
	h := r.ContentHash()
	return omap.Sum([]byte(r.Name()), []byte{0}, h[:])
}

func sum(list iter.Seq[*resource.Resource]) (h omap.Hash) {
	for r := range list {
		h = add(h, term(r))
	}
	return h
}

func add(a, b omap.Hash) (c omap.Hash) {
	lo, carry := bits.Add64(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:]), 0)
	hi, _ := bits.Add64(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8]), carry)
	binary.BigEndian.PutUint64(c[8:], lo)
	binary.BigEndian.PutUint64(c[:8], hi)
	return c
}

func subtract(a, b omap.Hash) (c omap.Hash) {
	lo, borrow := bits.Sub64(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:]), 0)
	hi, _ := bits.Sub64(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8]), borrow)
	binary.BigEndian.PutUint64(c[8:], lo)
	binary.BigEndian.PutUint64(c[:8], hi)
	return c
}
