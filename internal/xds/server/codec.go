package server

import (
	"google.golang.org/grpc/encoding"

	// The protobuf codec registers itself; other services on the same gRPC server go on using it.
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// received is a request as it came: its bytes are the stream's own and are dropped when it was scanned.
type received struct{ data []byte }

// response is an encoded response: slices shared with other streams, and the nonce.
type response struct{ parts mem.BufferSlice }

// codec passes ADS messages through and leaves everything else to protobuf.
type codec struct{ proto encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal hands out the shared slices. They are not pooled, so gRPC's freeing them does nothing.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		return r.parts, nil
	}
	return c.proto.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*received); ok {
		r.data = data.Materialize() // gRPC takes its buffers back when this returns
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

func (c codec) Name() string { return c.proto.Name() }
