package attack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// hit is what an attacker sends over a connection of its own: bytes, a request of HTTP/1.1, or frames of HTTP/2. It is a value: each method
// returns another one.
type hit struct {
	port                int
	cert, first, source string // name of the certificate, bytes before TLS, address of the attacker
	tls                 bool   // TLS even without a certificate
	alpn                []string
	raw                 string // bytes to send, if it is no request
	http2               bool
	method, path, host  string
	version             string
	headers             []field
	body                string
	trailers            []field
	pseudo              []field // instead of the usual ones, in HTTP/2
	claims              string  // what the token says, for can-i
	unasked             bool    // can-i has no words for it
}

// get is a plain request of HTTP/1.1.
func get(path string) hit {
	return hit{port: httpPort, method: "GET", path: path, host: "web.shop:8080", version: "HTTP/1.1"}
}

// get2 is a request of HTTP/2 with prior knowledge.
func get2(path string) hit {
	h := get(path)
	h.port, h.http2, h.host = http2Port, true, "web.shop:8081"
	return h
}

// send is bytes.
func send(text string) hit { return hit{port: httpPort, raw: text, unasked: true} }

// line is a line for who speaks no HTTP.
func line() hit { return hit{port: tcpPort, raw: "hello, world\n"} }

func (h hit) at(port int) hit         { h.port = port; return h }
func (h hit) by(method string) hit    { h.method = method; return h }
func (h hit) to(host string) hit      { h.host = host; return h }
func (h hit) from(address string) hit { h.source = address; return h }
func (h hit) behind(first string) hit { h.first, h.unasked = first, true; return h }
func (h hit) silent() hit             { h.unasked = true; return h }

// over2 is the request over HTTP/2.
func (h hit) over2() hit { h.http2 = true; return h }

// as is the request of a client with a certificate, over the protocol of the mesh unless others are given.
func (h hit) as(cert string, alpn ...string) hit {
	h.cert, h.alpn = cert, alpn
	if alpn == nil && cert != "" {
		h.alpn = []string{"istio-http/1.1"}
		if h.http2 {
			h.alpn = []string{"istio-h2"}
		} else if h.raw != "" {
			h.alpn = []string{"istio"}
		}
	}
	return h
}

// overTLS is the request of a client that shows no certificate.
func (h hit) overTLS(alpn ...string) hit {
	h.tls, h.alpn, h.unasked = true, alpn, true
	return h
}

// with adds headers: names and values in turn.
func (h hit) with(pairs ...string) hit {
	h.headers = append(h.headers[:len(h.headers):len(h.headers)], fields(pairs)...)
	return h
}

func fields(pairs []string) (list []field) {
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, field{pairs[i], pairs[i+1]})
	}
	return list
}

func (h hit) posts(body string, trailers ...string) hit {
	h.method, h.body, h.trailers = "POST", body, fields(trailers)
	return h
}

// begins replaces the pseudo headers of HTTP/2.
func (h hit) begins(pairs ...string) hit {
	h.pseudo, h.unasked = fields(pairs), true
	return h
}

// outcome is what an attack met.
type outcome struct {
	status int   // 0: no answer of HTTP
	seen   *seen // what the application saw; nil if it saw nothing
	detail string
}

func (o outcome) reached() bool { return o.seen != nil }

// String is the outcome for errors.
func (o outcome) String() string {
	if o.seen != nil {
		return fmt.Sprintf("status %d, the application saw %.200q %.300q", o.status, o.seen.Line, o.seen.Headers)
	}
	return fmt.Sprintf("status %d, %.200s", o.status, o.detail)
}

func outcomeOf(status int, body []byte) outcome {
	o := outcome{status: status, detail: string(body)}
	var s seen
	if text, ok := bytes.CutPrefix(body, []byte(echoed)); ok {
		o.seen = &seen{Line: string(text)}
	} else if json.Unmarshal(body, &s) == nil && s.Line != "" {
		o.seen = &s
	}
	return o
}

// dial opens the connection of a hit.
func (b *bed) dial(ctx context.Context, h hit) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit()) // a listener that waits for certificates takes no connection
	defer cancel()
	c, err := b.world.Dial(ctx, net.ParseIP(h.source), fmt.Sprintf("%s:%d", workload, h.port))
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(b.limit()))
	_ = c.(*net.TCPConn).SetLinger(0) // thousands of closed connections would use up ports
	if h.first != "" {
		fmt.Fprint(c, h.first)
	}
	if h.cert == "" && !h.tls {
		return c, nil
	}
	return tls.Client(c, b.ids.config(h.cert, h.alpn)), nil
}

// limit is how long an answer may take. Most refusals are immediate; some attacks leave Envoy waiting for more bytes.
func (b *bed) limit() time.Duration { return 2 * time.Second }

// together calls f for each of n attacks, many at a time: after a protocol error, Envoy closes an HTTP/2 connection a second later.
func together(n int, f func(i int)) {
	var group sync.WaitGroup
	next := make(chan int)
	for range min(n, 100) {
		group.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

// strike performs an attack.
func (b *bed) strike(ctx context.Context, h hit) outcome {
	c, err := b.dial(ctx, h)
	if err != nil {
		return outcome{detail: err.Error()}
	}
	defer c.Close()
	switch {
	case h.http2:
		return strike2(c, h)
	case h.raw != "":
		if _, err := io.WriteString(c, h.raw); err != nil {
			return outcome{detail: err.Error()}
		}
	default:
		if _, err := io.WriteString(c, h.text()); err != nil {
			return outcome{detail: err.Error()}
		}
	}
	return firstAnswer(c)
}

// text is the request as HTTP/1.1 has it.
func (h hit) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s\r\n", h.method, h.path, h.version)
	if h.host != "" {
		fmt.Fprintf(&b, "Host: %s\r\n", h.host)
	}
	for _, f := range h.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	if h.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(h.body))
	}
	return b.String() + "\r\n" + h.body
}

// firstAnswer reads an answer: of HTTP, or an echoed line.
func firstAnswer(c net.Conn) outcome {
	in := bufio.NewReader(c)
	if start, err := in.Peek(len(echoed)); err == nil && string(start) == echoed {
		text, _ := in.ReadString('\n')
		return outcomeOf(0, []byte(text))
	}
	return readAnswer(in)
}

// readAnswer reads an answer of HTTP/1.1, and what comes behind the one that switches protocols.
func readAnswer(in *bufio.Reader) outcome {
	for {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return outcome{detail: err.Error()}
		}
		if answer.StatusCode == http.StatusContinue {
			continue
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode == http.StatusSwitchingProtocols {
			buffer := make([]byte, 16<<10)
			n, _ := in.Read(buffer)
			body = buffer[:n]
		}
		return outcomeOf(answer.StatusCode, body)
	}
}

// all performs an attack and returns every answer on the connection.
func (b *bed) all(ctx context.Context, h hit) (list []outcome) {
	c, err := b.dial(ctx, h)
	if err != nil {
		return []outcome{{detail: err.Error()}}
	}
	defer c.Close()
	if _, err := io.WriteString(c, h.raw); err != nil {
		return []outcome{{detail: err.Error()}}
	}
	in := bufio.NewReader(c)
	for {
		o := readAnswer(in)
		if o.status == 0 {
			return append(list, o)
		}
		list = append(list, o)
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond)) // what else comes, comes soon
	}
}

// strike2 sends a request of HTTP/2 and reads its answer.
func strike2(c net.Conn, h hit) outcome {
	k, err := open2(c)
	if err == nil {
		err = k.ask(h)
	}
	if err != nil {
		return outcome{detail: err.Error()}
	}
	return k.answer()
}

// conn2 is the client's end of a connection of HTTP/2, at the level of frames.
type conn2 struct {
	*http2.Framer
	decoder *hpack.Decoder
	last    uint32 // stream
}

func open2(c net.Conn) (*conn2, error) {
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	k := &conn2{Framer: http2.NewFramer(c, c), decoder: hpack.NewDecoder(4096, nil)}
	k.AllowIllegalWrites = true
	return k, errors.Join(k.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}), k.WriteWindowUpdate(0, 1<<20))
}

// ask sends a request on the next stream.
func (k *conn2) ask(h hit) error {
	k.last++
	if k.last%2 == 0 {
		k.last++
	}
	list := h.pseudo
	if list == nil {
		list = fields([]string{":method", h.method, ":scheme", "http", ":authority", h.host, ":path", h.path})
	}
	open := h.body != "" || h.trailers != nil
	if err := k.writeFields(append(list[:len(list):len(list)], h.headers...), !open); err != nil || !open {
		return err
	}
	if err := k.WriteData(k.last, h.trailers == nil, []byte(h.body)); err != nil || h.trailers == nil {
		return err
	}
	return k.writeFields(h.trailers, true)
}

func (k *conn2) writeFields(list []field, end bool) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0)
	for _, f := range list {
		if err := e.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value}); err != nil {
			return err
		}
	}
	first := block.Next(16000)
	if err := k.WriteHeaders(http2.HeadersFrameParam{StreamID: k.last, BlockFragment: first, EndStream: end, EndHeaders: block.Len() == 0}); err != nil {
		return err
	}
	for block.Len() > 0 {
		next := block.Next(16000)
		if err := k.WriteContinuation(k.last, block.Len() == 0, next); err != nil {
			return err
		}
	}
	return nil
}

// answer reads frames until the last stream has ended.
func (k *conn2) answer() outcome {
	status, body := 0, []byte(nil)
	var block []byte
	for {
		frame, err := k.ReadFrame()
		if err != nil {
			return outcome{status: status, detail: err.Error()}
		}
		ended, complete, mine := false, false, frame.Header().StreamID == k.last
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = k.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			block, ended, complete = append([]byte(nil), frame.HeaderBlockFragment()...), frame.StreamEnded(), frame.HeadersEnded()
		case *http2.ContinuationFrame:
			block, complete = append(block, frame.HeaderBlockFragment()...), frame.HeadersEnded()
		case *http2.DataFrame:
			body, ended = append(body, frame.Data()...), frame.StreamEnded()
		case *http2.RSTStreamFrame:
			if mine {
				return outcome{status: status, detail: "reset: " + frame.ErrCode.String()}
			}
		case *http2.GoAwayFrame:
			return outcome{status: status, detail: "go away: " + frame.ErrCode.String()}
		}
		if complete {
			list, err := k.decoder.DecodeFull(block)
			if err != nil {
				return outcome{detail: errors.Join(errors.New("decoding headers"), err).Error()}
			}
			for _, f := range list {
				if f.Name == ":status" && mine {
					_, _ = fmt.Sscan(f.Value, &status)
				}
			}
		}
		if ended && mine {
			return outcomeOf(status, body)
		}
	}
}
