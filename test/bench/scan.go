package main

import (
	"errors"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// variant is one of the two protocol variants of ADS.
type variant uint8

const (
	delta variant = iota
	sotw
)

func (v variant) String() string {
	if v == sotw {
		return "sotw"
	}
	return "delta"
}

// method is the RPC of the variant.
func (v variant) method() string {
	const service = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	if v == sotw {
		return service + "StreamAggregatedResources"
	}
	return service + "DeltaAggregatedResources"
}

// The fields of a response that a client reads. Field 6 of a State-of-the-World response is the control plane's name.
const (
	fieldVersion   = 1 // system_version_info in delta
	fieldResources = 2
	fieldURL       = 4
	fieldNonce     = 5
	fieldRemoved   = 6
)

// answer is the part of a response that a client keeps.
type answer struct {
	typ       resource.Type
	bytes     int
	resources int
	removed   int
	version   []byte // State-of-the-World only
	nonce     []byte
}

var errMalformed = errors.New("malformed response")

// scan reads a response field by field over the buffers it came in; the contents of resources are passed over. each, if
// not nil, is called with the name and, in delta, the version of every resource; both are valid only during the call.
func scan(v variant, data mem.BufferSlice, a *answer, each func(name, version []byte)) error {
	w := walker{parts: data}
	*a = answer{bytes: data.Len(), version: a.version[:0], nonce: a.nonce[:0]}
	var url [96]byte
	for left := a.bytes; left > 0; {
		num, n, head := w.field()
		if head == 0 || n > left-head {
			return errMalformed
		}
		left -= head + n
		switch num {
		case fieldResources:
			a.resources++
			if each == nil {
				w.skip(n)
			} else if !w.resource(v, n, each) {
				return errMalformed
			}
		case fieldURL:
			t, ok := resource.ParseType(string(w.take(url[:0], n)))
			if !ok {
				return errors.New("response of an unknown type")
			}
			a.typ = t
		case fieldNonce:
			a.nonce = w.take(a.nonce, n)
		case fieldRemoved:
			if v == delta {
				a.removed++
			}
			w.skip(n)
		case fieldVersion:
			a.version = w.take(a.version, n)
		default:
			w.skip(n)
		}
	}
	return nil
}

// walker reads bytes that lie in several buffers, without joining them.
type walker struct {
	parts mem.BufferSlice
	cur   []byte // the rest of the buffer before parts
}

func (w *walker) fill() bool {
	for len(w.cur) == 0 {
		if len(w.parts) == 0 {
			return false
		}
		w.cur, w.parts = w.parts[0].ReadOnlyData(), w.parts[1:]
	}
	return true
}

// varint reads a number and how many bytes it took, 0 if there is none.
func (w *walker) varint() (v uint64, n int) {
	if len(w.cur) > 0 && w.cur[0] < 0x80 {
		v, w.cur = uint64(w.cur[0]), w.cur[1:]
		return v, 1
	}
	return w.longVarint()
}

func (w *walker) longVarint() (v uint64, n int) {
	if v, n = protowire.ConsumeVarint(w.cur); n > 0 {
		w.cur = w.cur[n:]
		return v, n
	}
	n = 0
	for shift := 0; shift < 64 && w.fill(); shift += 7 {
		b := w.cur[0]
		w.cur = w.cur[1:]
		n++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// field reads tag and length of a field: its number, the size of its content, and the size of both (0 on error). The
// content of a field that is not length-delimited is passed over.
func (w *walker) field() (num protowire.Number, size, head int) {
	tag, n := w.varint()
	num, typ := protowire.DecodeTag(tag)
	switch {
	case n == 0:
		return 0, 0, 0
	case typ == protowire.BytesType:
		v, m := w.varint()
		if m == 0 || v > 1<<31 {
			return 0, 0, 0
		}
		return num, int(v), n + m
	case typ == protowire.VarintType:
		_, m := w.varint()
		if m == 0 {
			return 0, 0, 0
		}
		return -1, 0, n + m
	case typ == protowire.Fixed32Type:
		return -1, 4, n
	case typ == protowire.Fixed64Type:
		return -1, 8, n
	}
	return 0, 0, 0
}

func (w *walker) skip(n int) {
	for n > 0 && w.fill() {
		m := min(n, len(w.cur))
		w.cur = w.cur[m:]
		n -= m
	}
}

// take appends the next n bytes to dst.
func (w *walker) take(dst []byte, n int) []byte {
	for n > 0 && w.fill() {
		m := min(n, len(w.cur))
		dst = append(dst, w.cur[:m]...)
		w.cur = w.cur[m:]
		n -= m
	}
	return dst
}

// resource reads the element of a response that is n bytes long and hands its name to each.
func (w *walker) resource(v variant, n int, each func(name, version []byte)) bool {
	var nameBuf, versionBuf [128]byte
	name, version := nameBuf[:0], versionBuf[:0]
	const anyValue = 2
	for n > 0 {
		num, size, head := w.field()
		if head == 0 || size > n-head {
			return false
		}
		n -= head + size
		switch {
		case v == delta && num == 1:
			version = w.take(version, size)
		case v == delta && num == 3:
			name = w.take(name, size)
		case v == sotw && num == anyValue:
			// The resource itself. Clusters, assignments, listeners and routes have their name in field 1, which
			// comes first.
			first, inner, head := w.field()
			if head == 0 || first != 1 || inner > size-head {
				return false
			}
			name = w.take(name, inner)
			w.skip(size - head - inner)
		default:
			w.skip(size)
		}
	}
	each(name, version)
	return true
}
