package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// refuseHeader makes the authorizers refuse a request, whatever its value.
const refuseHeader = "x-refuse"

// accept serves connections until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * patience))
			serve(c)
		}()
	}
}

// field is a header.
type field struct{ Name, Value string }

// seen is what the application got: the first line of a request, its headers and its body.
type seen struct {
	Line    string
	Headers []field
	Body    string
}

// values are the values of a header.
func (s *seen) values(name string) (list []string) {
	for _, h := range s.Headers {
		if strings.EqualFold(h.Name, name) {
			list = append(list, h.Value)
		}
	}
	return list
}

// path is the path that the application got, without query and fragment.
func (s *seen) path() string {
	_, rest, _ := strings.Cut(s.Line, " ")
	path := rest[:max(0, strings.LastIndexByte(rest, ' '))]
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	return path
}

// answerHTTP is the application: it speaks HTTP/1.1 or HTTP/2, as the client begins, and answers with a report of the request. It is lenient where it
// can be.
func answerHTTP(c net.Conn) {
	in := bufio.NewReader(c)
	if preface, err := in.Peek(3); err == nil && string(preface) == "PRI" {
		answerHTTP2(c, in)
		return
	}
	for {
		s, upgrade, err := readRequest(in)
		if err != nil {
			return
		}
		body, err := json.Marshal(s)
		if err != nil {
			return
		}
		if upgrade {
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n%s", body)
			continue
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// readRequest reads a request with its body.
func readRequest(in *bufio.Reader) (s *seen, upgrade bool, err error) {
	s = &seen{}
	if s.Line, err = in.ReadString('\n'); err != nil {
		return nil, false, err
	}
	s.Line = strings.TrimRight(s.Line, "\r\n")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, false, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		s.Headers = append(s.Headers, field{strings.TrimSpace(name), strings.TrimSpace(value)})
	}
	first := func(name string) string { return strings.ToLower(strings.Join(s.values(name), ",")) }
	if strings.Contains(first("transfer-encoding"), "chunked") {
		s.Body, err = readChunks(in)
	} else if n, failed := strconv.Atoi(first("content-length")); failed == nil {
		body := make([]byte, n)
		_, err = io.ReadFull(in, body)
		s.Body = string(body[:min(n, 200)])
	}
	return s, first("upgrade") == "websocket", err
}

func readChunks(in *bufio.Reader) (body string, err error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 32)
		if err != nil {
			return "", err
		}
		if n == 0 {
			for line != "\r\n" { // trailers
				if line, err = in.ReadString('\n'); err != nil {
					return "", err
				}
			}
			return body, nil
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return "", err
		}
		body += string(chunk[:n])
	}
}

// answerHTTP2 answers each stream when it ends.
func answerHTTP2(c net.Conn, in *bufio.Reader) {
	if _, err := in.Discard(len(http2.ClientPreface)); err != nil {
		return
	}
	f := http2.NewFramer(c, in)
	_ = f.WriteSettings()
	decoder := hpack.NewDecoder(4096, nil)
	streams := map[uint32]*seen{}
	var block []byte
	ended := false
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		id, headers := frame.Header().StreamID, false
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
			continue
		case *http2.HeadersFrame:
			block, ended, headers = slices.Clone(frame.HeaderBlockFragment()), frame.StreamEnded(), frame.HeadersEnded()
		case *http2.ContinuationFrame:
			block, headers = append(block, frame.HeaderBlockFragment()...), frame.HeadersEnded()
		case *http2.DataFrame:
			ended = frame.StreamEnded()
			_ = f.WriteWindowUpdate(0, max(1, frame.Length))
		default:
			continue
		}
		if headers {
			fields, err := decoder.DecodeFull(block)
			if err != nil {
				return
			}
			block = nil
			if streams[id] == nil {
				streams[id] = &seen{}
				streams[id].addFields(fields)
			} // what comes later are trailers, which no application takes for headers
		}
		if ended && block == nil && streams[id] != nil {
			if answerStream(f, id, streams[id]) != nil {
				return
			}
			delete(streams, id)
		}
	}
}

func (s *seen) addFields(fields []hpack.HeaderField) {
	for _, h := range fields {
		s.Headers = append(s.Headers, field{h.Name, h.Value})
	}
	s.Line = strings.Join(append(s.values(":method"), strings.Join(s.values(":path"), ""), "HTTP/2"), " ")
}

func answerStream(f *http2.Framer, id uint32, s *seen) error {
	var block bytes.Buffer
	if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}); err != nil {
		return err
	}
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	for len(body) > 16000 {
		if err := f.WriteData(id, false, body[:16000]); err != nil {
			return err
		}
		body = body[16000:]
	}
	return f.WriteData(id, true, body)
}

// echoed stands before each line that the application sends back.
const echoed = "echo "

// answerLines sends back what comes.
func answerLines(c net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		fmt.Fprintf(c, "%s%s", echoed, buffer[:n])
	}
}

// answerQuestions is an authorizer that speaks HTTP.
func answerQuestions(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		s, _, err := readRequest(in)
		if err != nil {
			return
		}
		if len(s.values(refuseHeader)) > 0 {
			fmt.Fprint(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		} else {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nx-asked: yes\r\nContent-Length: 0\r\n\r\n")
		}
	}
}

// authorizer is one that speaks gRPC.
type authorizer struct{}

// Check implements authv3.AuthorizationServer.
func (authorizer) Check(_ context.Context, q *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	code := codes.OK
	if _, refuse := q.GetAttributes().GetRequest().GetHttp().GetHeaders()[refuseHeader]; refuse {
		code = codes.PermissionDenied
	}
	return &authv3.CheckResponse{Status: &statuspb.Status{Code: int32(code)}}, nil
}

func serveAuthorizer(l net.Listener) {
	g := grpc.NewServer()
	authv3.RegisterAuthorizationServer(g, authorizer{})
	_ = g.Serve(l) // it ends with the listener
}

// keyServer serves the key sets of issuers by their paths.
type keyServer struct {
	mu   sync.Mutex
	sets map[string]string
}

// put makes text the key set at a path; none if it is empty.
func (k *keyServer) put(path, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sets[path] = text
}

func (k *keyServer) answer(c net.Conn) {
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	k.mu.Lock()
	text := k.sets[q.URL.Path]
	k.mu.Unlock()
	if text == "" {
		fmt.Fprint(c, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		return
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}
