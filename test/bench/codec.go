package main

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// rawCodec hands messages over as they are on the wire: it sends a mem.BufferSlice, and receives a *message. Nothing is
// decoded, so the clients cost little more than the sockets they read from.
type rawCodec struct{}

// message is a received message. Its buffers belong to the receiver until free.
type message struct{ data mem.BufferSlice }

func (m *message) free() {
	m.data.Free()
	m.data = nil
}

// Name is the name of the protobuf codec, because the bytes on the wire are protobuf.
func (rawCodec) Name() string { return "proto" }

// Marshal passes buffers on.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(mem.BufferSlice); ok {
		return b, nil
	}
	return nil, fmt.Errorf("the raw codec sends buffers, not %T", v)
}

// Unmarshal keeps the received buffers.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("the raw codec receives into a *message, not %T", v)
	}
	data.Ref()
	m.data = data
	return nil
}

// buffers joins byte slices into one message without copying them. They must not be written to afterwards.
func buffers(parts ...[]byte) mem.BufferSlice {
	s := make(mem.BufferSlice, 0, len(parts))
	for _, p := range parts {
		if len(p) > 0 {
			s = append(s, mem.SliceBuffer(p))
		}
	}
	return s
}
