package server

import (
	"google.golang.org/grpc/encoding"

	// The protobuf codec registers itself; other services on the same gRPC server continue to use it.
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// received is an encoded request. The stream owns its bytes.
type received struct{ data []byte }

// encoded is a response in the form of the wire: buffers that streams share, and the nonce.
type encoded struct{ parts mem.BufferSlice }

// codec passes ADS messages through as bytes and leaves all other messages to the protobuf codec.
type codec struct{ proto encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal returns the shared buffers. They come from no pool, so it does no harm that gRPC frees them.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*encoded); ok {
		return r.parts, nil
	}
	return c.proto.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*received); ok {
		r.data = data.Materialize() // gRPC reuses its buffers after the return.
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

func (c codec) Name() string { return c.proto.Name() }
