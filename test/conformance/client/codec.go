package client

import "fmt"

// rawCodec sends and receives messages as bytes: *[]byte to receive into, []byte to send.
type rawCodec struct{}

// Name is the name of the protobuf codec: the bytes on the wire are protobuf, or claim to be.
func (rawCodec) Name() string { return "proto" }

// Marshal passes bytes on.
func (rawCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("the raw codec sends bytes, not %T", v)
	}
	return b, nil
}

// Unmarshal keeps the bytes.
func (rawCodec) Unmarshal(data []byte, v any) error {
	p, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("the raw codec receives into *[]byte, not %T", v)
	}
	// Never nil: a message of no bytes is a message.
	*p = append(make([]byte, 0, len(data)), data...)
	return nil
}
