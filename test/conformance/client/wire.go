package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Wire is an HTTP/2 connection that does nothing by itself, except that settings and pings are answered. It
// never grants the server more to send than it was opened with.
type Wire struct {
	conn   net.Conn
	ended  chan struct{} // closed when the server has closed the connection or said that it will
	reset  chan uint32   // streams the server has ended
	closed sync.Once

	mu     sync.Mutex // writing
	framer *http2.Framer
}

// DialWire connects. Window is how many bytes the server may send per stream.
func DialWire(ctx context.Context, address string, window uint32) (*Wire, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w := &Wire{conn: conn, framer: http2.NewFramer(conn, conn), ended: make(chan struct{}), reset: make(chan uint32, 64)}
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("beginning HTTP/2: %w", err)
	}
	go w.read()
	return w, nil
}

// Close drops the connection and waits for its reader.
func (w *Wire) Close() {
	w.conn.Close()
	<-w.ended
}

// Ended is closed when the server has closed the connection or announced it.
func (w *Wire) Ended() <-chan struct{} { return w.ended }

// Reset hands out the streams that the server has ended.
func (w *Wire) Reset() <-chan uint32 { return w.reset }

func (w *Wire) read() {
	defer w.closed.Do(func() { close(w.ended) })
	for {
		f, err := w.framer.ReadFrame()
		if err != nil {
			var stream http2.StreamError
			if errors.As(err, &stream) {
				continue
			}
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				w.write(func() error { return w.framer.WriteSettingsAck() })
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				w.write(func() error { return w.framer.WritePing(true, f.Data) })
			}
		case *http2.RSTStreamFrame:
			w.over(f.StreamID)
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				w.over(f.StreamID)
			}
		case *http2.GoAwayFrame:
			return
		}
	}
}

func (w *Wire) over(stream uint32) {
	select {
	case w.reset <- stream:
	default: // no test counts so many
	}
}

// write is for the reader, which learns of a broken connection by itself.
func (w *Wire) write(do func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = do()
}

// Begin opens a stream: stream numbers are odd and grow.
func (w *Wire) Begin(stream uint32, path string) error {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "xds"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
}

// Message sends a gRPC message; claim is the length it says it has.
func (w *Wire) Message(stream uint32, payload []byte, claim int) error {
	framed := make([]byte, 5, 5+len(payload))
	binary.BigEndian.PutUint32(framed[1:], uint32(claim))
	return w.Data(stream, append(framed, payload...))
}

// Data sends bytes on a stream.
func (w *Wire) Data(stream uint32, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(data) > 0 {
		n := min(len(data), 16<<10)
		if err := w.framer.WriteData(stream, false, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Raw sends bytes beside all framing.
func (w *Wire) Raw(data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.conn.Write(data)
	return err
}
