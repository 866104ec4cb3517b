// Package request scans encoded discovery requests, in both protocol variants of ADS.
//
// Invariants: A scanned request refers to the received bytes and decodes lists of names only when they are read. Scan accepts
// and refuses the same requests as the protobuf codec, except for the contents of the node and of error_detail.
//
// The package knows no stream and no state, and starts no goroutines.
package request

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// Variant is one of the two protocol variants of ADS.
type Variant uint8

// The variants.
const (
	StateOfTheWorld Variant = iota
	Delta
)

// String is the name of the variant in logs and debug pages.
func (v Variant) String() string {
	if v == Delta {
		return "delta"
	}
	return "sotw"
}

// Field numbers of DiscoveryRequest and DeltaDiscoveryRequest.
const (
	sotwVersion = 1
	sotwNode    = 2
	sotwNames   = 3
	sotwURL     = 4
	sotwNonce   = 5
	sotwDetail  = 6

	deltaNode        = 1
	deltaURL         = 2
	deltaSubscribe   = 3
	deltaUnsubscribe = 4
	deltaInitial     = 5
	deltaNonce       = 6
	deltaDetail      = 7

	// subscribeField is the field of the subscribed names in both variants.
	subscribeField = 3
)

// Request is a scanned DiscoveryRequest or DeltaDiscoveryRequest. It refers to the received bytes and decodes only the fields that are read.
// The digest of a list of 12,000 names takes a few hundred microseconds, and the names become strings only if the digest is
// new.
type Request struct {
	Variant Variant
	// URL is the type URL.
	URL   []byte
	Nonce []byte
	// Node is the encoded node; nil if the request has none.
	Node []byte
	// Rejected is set if the request has an error_detail, which makes it a NACK. Detail is the encoded google.rpc.Status.
	Rejected bool
	Detail   []byte

	// Subscribes is the number of names in resource_names or resource_names_subscribe.
	Subscribes int
	// Drops is the number of names in resource_names_unsubscribe.
	Drops int
	// Initials is the number of initial_resource_versions.
	Initials int

	raw []byte
}

// Answers reports whether the request is an ACK or NACK that subscribes to nothing. The core never refuses such a request once
// the stream is connected.
func (q *Request) Answers() bool { return len(q.Nonce) > 0 && q.Subscribes == 0 }

var (
	errTruncated = errors.New("truncated or malformed message")
	errUTF8      = errors.New("a string field is not valid UTF-8")
)

// Scan scans an encoded request. It does not check the contents of the node and of error_detail, which are decoded later, if
// at all.
func Scan(v Variant, raw []byte) (*Request, error) {
	q := &Request{Variant: v, raw: raw}
	scanField := q.scanSotW
	if v == Delta {
		scanField = q.scanDelta
	}
	for b := raw; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, errTruncated
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, errTruncated
			}
			b = b[n:]
			continue
		}
		val, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, errTruncated
		}
		b = b[n:]
		if err := scanField(num, val); err != nil {
			return nil, fmt.Errorf("%s request, field %d: %w", v, num, err)
		}
	}
	return q, nil
}

func (q *Request) scanSotW(num protowire.Number, val []byte) error {
	switch num {
	case sotwNode:
		q.Node = merge(q.Node, val)
		return nil
	case sotwDetail:
		q.Rejected, q.Detail = true, merge(q.Detail, val)
		return nil
	case sotwVersion:
	case sotwNames:
		q.Subscribes++
	case sotwURL:
		q.URL = val
	case sotwNonce:
		q.Nonce = val
	default:
		return nil
	}
	return valid(val)
}

func (q *Request) scanDelta(num protowire.Number, val []byte) error {
	switch num {
	case deltaNode:
		q.Node = merge(q.Node, val)
		return nil
	case deltaDetail:
		q.Rejected, q.Detail = true, merge(q.Detail, val)
		return nil
	case deltaInitial:
		q.Initials++
		_, _, err := entry(val)
		return err
	case deltaURL:
		q.URL = val
	case deltaSubscribe:
		q.Subscribes++
	case deltaUnsubscribe:
		q.Drops++
	case deltaNonce:
		q.Nonce = val
	default:
		return nil
	}
	return valid(val)
}

// merge joins a message field that occurs twice. In protobuf the concatenation of encodings is their merge.
func merge(have, val []byte) []byte {
	if have == nil {
		return val[:len(val):len(val)]
	}
	return append(have, val...)
}

func valid(s []byte) error {
	if !utf8.Valid(s) {
		return errUTF8
	}
	return nil
}

// entry decodes an entry of a map<string, string>.
func entry(b []byte) (key, value []byte, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, errTruncated
		}
		b = b[n:]
		if typ != protowire.BytesType || num > 2 {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, nil, errTruncated
			}
			b = b[n:]
			continue
		}
		val, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, nil, errTruncated
		}
		b = b[n:]
		if err := valid(val); err != nil {
			return nil, nil, err
		}
		if num == 1 {
			key = val
		} else {
			value = val
		}
	}
	return key, value, nil
}

// values yields the values of a repeated field, each also with its tag and length.
func (q *Request) values(field protowire.Number) iter.Seq2[[]byte, []byte] {
	return func(yield func(val, framed []byte) bool) {
		for b := q.raw; len(b) > 0; {
			num, typ, tag := protowire.ConsumeTag(b)
			if tag < 0 {
				return
			}
			if num != field || typ != protowire.BytesType {
				n := protowire.ConsumeFieldValue(num, typ, b[tag:])
				if n < 0 {
					return
				}
				b = b[tag+n:]
				continue
			}
			val, n := protowire.ConsumeBytes(b[tag:])
			if n < 0 || !yield(val, b[:tag+n]) {
				return
			}
			b = b[tag+n:]
		}
	}
}

// Subscribed yields the names in resource_names or resource_names_subscribe.
func (q *Request) Subscribed() iter.Seq[[]byte] { return q.field(subscribeField, q.Subscribes) }

// Dropped yields the names in resource_names_unsubscribe.
func (q *Request) Dropped() iter.Seq[[]byte] { return q.field(deltaUnsubscribe, q.Drops) }

func (q *Request) field(num protowire.Number, count int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if count == 0 {
			return
		}
		for val := range q.values(num) {
			if !yield(val) {
				return
			}
		}
	}
}

// Initial yields the names and versions in initial_resource_versions.
func (q *Request) Initial() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, version []byte) bool) {
		if q.Initials == 0 {
			return
		}
		for val := range q.values(deltaInitial) {
			name, version, err := entry(val)
			if err != nil || !yield(name, version) {
				return
			}
		}
	}
}

// Digest is a hash of the encoded names of the request.
func (q *Request) Digest() omap.Hash {
	if q.Drops == 0 {
		return q.digest(subscribeField)
	}
	return q.digest(subscribeField, deltaUnsubscribe)
}

// InitialDigest is a hash of the encoded initial_resource_versions.
func (q *Request) InitialDigest() omap.Hash { return q.digest(deltaInitial) }

// digest is a hash of some encoded fields of the request. Adjacent fields are hashed together, which is faster.
func (q *Request) digest(fields ...protowire.Number) omap.Hash {
	h := sha256.New()
	for _, num := range fields {
		var run []byte // adjacent fields
		for _, framed := range q.values(num) {
			if len(run) > 0 && cap(framed) == cap(run)-len(run) {
				run = run[:len(run)+len(framed)]
				continue
			}
			h.Write(run)
			run = framed
		}
		h.Write(run)
		h.Write([]byte{0}) // No tag is 0, so this separates subscribed from dropped names.
	}
	var sum [sha256.Size]byte
	return omap.Hash(h.Sum(sum[:0])[:len(omap.Hash{})])
}

// StatusText is the message of an encoded google.rpc.Status, cut to limit bytes.
func StatusText(status []byte, limit int) string {
	const fieldMessage = 2
	var text []byte
	for b := status; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			break
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			break
		}
		if num == fieldMessage && typ == protowire.BytesType {
			text, _ = protowire.ConsumeBytes(b)
		}
		b = b[n:]
	}
	if len(text) > limit {
		text = text[:limit]
	}
	return string(bytes.ToValidUTF8(text, []byte("?")))
}
