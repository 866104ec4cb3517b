package nacos

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// payload is a message of Nacos' protocol over gRPC: a name of a type, headers, and a body in JSON.
type payload struct {
	kind    string
	headers map[string]string
	body    []byte
}

// The fields of the messages Payload, Metadata, the entries of its headers, and Any.
const (
	payloadMetadata = protowire.Number(2)
	payloadBody     = protowire.Number(3)
	metadataType    = protowire.Number(3)
	metadataHeaders = protowire.Number(7)
	entryKey        = protowire.Number(1)
	entryValue      = protowire.Number(2)
	anyValue        = protowire.Number(2)
)

// codec is the codec of payloads: the messages have four fields, which need no generated code. It implements encoding.Codec.
type codec struct{}

// Name implements encoding.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) {
	p, ok := v.(*payload)
	if !ok {
		return nil, fmt.Errorf("%T is no payload", v)
	}
	field := func(b []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
	}
	metadata := field(nil, metadataType, []byte(p.kind))
	for k, v := range p.headers {
		metadata = field(metadata, metadataHeaders, field(field(nil, entryKey, []byte(k)), entryValue, []byte(v)))
	}
	return field(field(nil, payloadMetadata, metadata), payloadBody, field(nil, anyValue, p.body)), nil
}

// Unmarshal implements encoding.Codec. Headers of answers are not read.
func (codec) Unmarshal(data []byte, v any) error {
	p, ok := v.(*payload)
	if !ok {
		return fmt.Errorf("%T is no payload", v)
	}
	*p = payload{}
	return eachField(data, func(n protowire.Number, value []byte) error {
		switch n {
		case payloadMetadata:
			return eachField(value, func(n protowire.Number, value []byte) error {
				if n == metadataType {
					p.kind = string(value)
				}
				return nil
			})
		case payloadBody:
			return eachField(value, func(n protowire.Number, value []byte) error {
				if n == anyValue {
					p.body = append([]byte(nil), value...)
				}
				return nil
			})
		}
		return nil
	})
}

var errWire = errors.New("the server sends a message that is no payload of Nacos")

// eachField calls do with each field of a message that has a length.
func eachField(data []byte, do func(n protowire.Number, value []byte) error) error {
	for len(data) > 0 {
		n, typ, size := protowire.ConsumeTag(data)
		if size < 0 {
			return errWire
		}
		data = data[size:]
		if typ != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, typ, data); size < 0 {
				return errWire
			}
			data = data[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(data)
		if size < 0 {
			return errWire
		}
		if err := do(n, value); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}
