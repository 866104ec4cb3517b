package nacos

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// unknownConnection is the answer to a request over a connection that the server does not know.
const unknownConnection = `{"resultCode": 500, "errorCode": 301, "message": "Connection is unregistered."}`

// fake is a Nacos of version 2: HTTP at a port, and the protocol over gRPC at that port and 1000.
type fake struct {
	t       *testing.T
	address string
	push    *grpc.Server
	token   string // that requests need; empty for none

	mu       sync.Mutex
	services map[string]string // the instances of services of G, by name
	clock    int64
	streams  []chan *payload
	early    int // requests that are answered as if the connection were unknown
	asked    []string
	answers  []string // to requests of the server
}

// newFake starts a server. Without pushes, its port for gRPC is closed.
func newFake(t *testing.T, pushes bool) *fake {
	f := &fake{t: t, services: map[string]string{}, early: 2}
	var web, rpc net.Listener
	for rpc == nil { // both ports must be free
		var err error
		if web, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if rpc, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", web.Addr().(*net.TCPAddr).Port+portOffset)); err != nil {
			web.Close()
		}
	}
	f.address = web.Addr().String()
	site := httptest.NewUnstartedServer(http.HandlerFunc(f.http))
	site.Listener = web
	site.Start()
	t.Cleanup(site.Close)
	if !pushes {
		rpc.Close()
		return f
	}
	f.push = grpc.NewServer(grpc.ForceServerCodec(codec{}))
	f.push.RegisterService(&grpc.ServiceDesc{ServiceName: "Request", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "request", Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := &payload{}
			if err := read(in); err != nil {
				return nil, err
			}
			return f.answer(in), nil
		},
	}}}, f)
	f.push.RegisterService(&grpc.ServiceDesc{ServiceName: "BiRequestStream", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "requestBiStream", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return f.stream(s) },
	}}}, f)
	go func() { _ = f.push.Serve(rpc) }()
	t.Cleanup(f.push.Stop)
	return f
}

func (f *fake) info(name string) string {
	return fmt.Sprintf(`{"name": %q, "groupName": "G", "lastRefTime": %d, "hosts": [%s]}`, name, f.clock, f.services[name])
}

// http answers the open API. The group of all services is G.
func (f *fake) http(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "HTTP "+r.URL.Path)
	switch r.URL.Path {
	case "/nacos/v1/auth/login":
		fmt.Fprintf(w, `{"accessToken": %q, "tokenTtl": 18000}`, f.token)
	case "/nacos/v1/ns/service/list":
		_ = json.NewEncoder(w).Encode(map[string]any{"count": len(f.services), "doms": slices.Sorted(maps.Keys(f.services))})
	default:
		fmt.Fprint(w, f.info(r.URL.Query().Get("serviceName")))
	}
}

// answer answers a request over gRPC.
func (f *fake) answer(in *payload) *payload {
	f.mu.Lock()
	defer f.mu.Unlock()
	var q struct {
		ServiceName string
		Subscribe   bool
		Headers     map[string]string
	}
	if err := json.Unmarshal(in.body, &q); err != nil {
		f.t.Errorf("%s: %v", in.body, err)
	}
	f.asked = append(f.asked, fmt.Sprintf("%s %s %v", in.kind, q.ServiceName, q.Subscribe))
	body := `{"resultCode": 200}`
	switch {
	case in.kind == serverCheck:
	case len(f.streams) == 0: // a real server does not know a connection either before it has read the setup
		body = unknownConnection
	case f.early > 0:
		f.early--
		body = unknownConnection
	case q.Headers["accessToken"] != f.token:
		body = `{"resultCode": 500, "errorCode": 403, "message": "denied"}`
	case in.kind == serviceList:
		text, _ := json.Marshal(map[string]any{"resultCode": 200, "count": len(f.services), "serviceNames": slices.Sorted(maps.Keys(f.services))})
		body = string(text)
	case in.kind == subscribe:
		body = fmt.Sprintf(`{"resultCode": 200, "serviceInfo": %s}`, f.info(q.ServiceName))
	}
	return &payload{kind: strings.TrimSuffix(in.kind, request) + response, body: []byte(body)}
}

// stream sends pushes, until the server stops or a nil payload ends the stream.
func (f *fake) stream(s grpc.ServerStream) error {
	var first payload
	if err := s.RecvMsg(&first); err != nil || first.kind != connectionSetup {
		return fmt.Errorf("the first message is %s: %w", first.kind, err)
	}
	out := make(chan *payload, 100)
	f.mu.Lock()
	f.streams = append(f.streams, out)
	f.mu.Unlock()
	go func() {
		for {
			var in payload
			if s.RecvMsg(&in) != nil {
				return
			}
			f.mu.Lock()
			f.answers = append(f.answers, in.kind+string(in.body))
			f.mu.Unlock()
		}
	}()
	for {
		select {
		case <-s.Context().Done():
			return nil
		case one := <-out:
			if one == nil {
				return nil
			}
			if err := s.SendMsg(one); err != nil {
				return err
			}
		}
	}
}

// send sends a payload to all streams; nil ends them.
func (f *fake) send(p *payload) {
	for _, s := range f.streams {
		s <- p
	}
	if p == nil {
		f.streams = nil
	}
}

// set changes the instances of a service, and pushes them.
func (f *fake) set(name string, addresses ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.write(name, addresses...)
	f.send(&payload{kind: notify, body: fmt.Appendf(nil, `{"requestId": "7", "serviceInfo": %s}`, f.info(name))})
}

func (f *fake) write(name string, addresses ...string) {
	f.clock++
	var hosts []string
	for _, a := range addresses {
		hosts = append(hosts, fmt.Sprintf(`{"ip": %q, "port": 80, "healthy": true, "enabled": true, "weight": 1.0}`, a))
	}
	f.services[name] = strings.Join(hosts, ",")
}

// heard is a listener that passes on each call as text.
type heard chan string

func (h heard) services(what string, all registries.Services) {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		text := key + ":"
		if all[key] == nil {
			text += " gone"
		} else {
			for _, in := range all[key].Instances {
				text += " " + in.Address
			}
		}
		parts = append(parts, text)
	}
	h <- what + " " + strings.Join(parts, "; ")
}

func (h heard) List(all registries.Services, _ bool) { h.services("list", all) }
func (h heard) Change(some registries.Services)      { h.services("change", some) }
func (h heard) Lost(err error)                       { h <- "lost " + err.Error() }
func (h heard) Refused(err error)                    { h <- "refused " + err.Error() }
func (heard) Remark([]registries.Remark)             {}
func (heard) Objects(registries.ObjectChange)        {}
func (heard) Listed()                                {}
func (h heard) want(t *testing.T, prefix string) string {
	t.Helper()
	select {
	case got := <-h:
		if !strings.HasPrefix(got, prefix) {
			t.Fatalf("got %q, want %q", got, prefix)
		}
		return got
	case <-time.After(20 * time.Second):
		t.Fatalf("nothing is heard; want %q", prefix)
	}
	return ""
}

// follow reads a server until the test ends.
func (f *fake) follow(refresh time.Duration, auth map[string]string) heard {
	e := registries.Entry{Type: registries.Nacos, Scheme: "http", Addresses: []string{f.address}, Refresh: refresh, NacosNamespaceID: "public", NacosGroups: []string{"G"}}
	r, err := New(e, registries.Access{Auth: auth}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	h := make(heard, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, h)
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

// TestPush: a change of a known service arrives without a request, and an old version is ignored. A connection that ends is a loss of sight, after which all is listed.
func TestPush(t *testing.T) {
	f := newFake(t, true)
	f.write("orders", "192.0.2.1")
	f.write("users", "192.0.2.9")
	h := f.follow(time.Hour, nil)
	h.want(t, "list G@@orders: 192.0.2.1; G@@users: 192.0.2.9")
	f.set("orders", "192.0.2.1", "192.0.2.2")
	h.want(t, "change G@@orders: 192.0.2.1 192.0.2.2")
	f.mu.Lock()
	f.send(&payload{kind: notify, body: []byte(`{"serviceInfo": {"name": "G@@orders", "groupName": "G", "lastRefTime": 1, "hosts": []}}`)})
	f.send(&payload{kind: notify, body: []byte(`{"serviceInfo": {"name": "unknown", "groupName": "G", "hosts": []}}`)})
	f.send(&payload{kind: notify, body: []byte(`{"serviceInfo": [`)})
	f.send(&payload{kind: "ClientDetectionRequest", body: []byte(`{"requestId": "8"}`)})
	f.mu.Unlock()
	f.set("users")
	h.want(t, "change G@@users:")
	for _, want := range []string{`NotifySubscriberResponse{"errorCode":0,"requestId":"7","resultCode":200}`, `ClientDetectionResponse{"errorCode":0,"requestId":"8","resultCode":200}`} {
		f.await(func() bool { return slices.Contains(f.answers, want) }, want)
	}
	f.mu.Lock()
	for _, one := range f.asked {
		if strings.HasPrefix(one, "HTTP") {
			t.Errorf("asked over HTTP: %s", one)
		}
	}
	f.write("orders", "192.0.2.3")
	f.send(nil)
	f.mu.Unlock()
	h.want(t, "lost 127.0.0.1:")
	h.want(t, "list G@@orders: 192.0.2.3; G@@users:")
	f.mu.Lock()
	f.write("orders", "192.0.2.4")
	f.send(&payload{kind: connectReset, body: []byte(`{}`)})
	f.mu.Unlock()
	h.want(t, "lost 127.0.0.1:")
	h.want(t, "list G@@orders: 192.0.2.4; G@@users:")
}

// await waits until something is true of the server.
func (f *fake) await(is func() bool, what string) {
	f.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		f.mu.Lock()
		done := is()
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-limit.C:
			f.t.Fatalf("it does not happen: %s; the answers are %q", what, f.answers)
		case <-tick.C:
		}
	}
}

// TestNewServices: new names, and names that are gone, are noticed at the next interval; the instances of known services are not requested again.
func TestNewServices(t *testing.T) {
	f := newFake(t, true)
	f.write("orders", "192.0.2.1")
	h := f.follow(10*time.Millisecond, nil)
	h.want(t, "list G@@orders: 192.0.2.1")
	f.mu.Lock()
	f.write("users", "192.0.2.9")
	f.mu.Unlock()
	h.want(t, "change G@@users: 192.0.2.9")
	f.mu.Lock()
	delete(f.services, "orders")
	f.mu.Unlock()
	h.want(t, "change G@@orders: gone")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, want := range []string{"SubscribeServiceRequest orders true", "SubscribeServiceRequest orders false", "SubscribeServiceRequest users true"} {
		if n := len(slices.DeleteFunc(slices.Clone(f.asked), func(s string) bool { return s != want })); n != 1 {
			t.Errorf("%q was asked for %d times", want, n)
		}
	}
}

// TestWithoutPush: a server that does not speak the protocol is asked over HTTP.
func TestWithoutPush(t *testing.T) {
	f := newFake(t, false)
	f.write("orders", "192.0.2.1")
	h := f.follow(10*time.Millisecond, nil)
	h.want(t, "list G@@orders: 192.0.2.1")
	f.mu.Lock()
	f.write("orders", "192.0.2.2")
	f.mu.Unlock()
	h.want(t, "change G@@orders: 192.0.2.2")
}

// TestPushNeedsToken: the token of the login goes with requests over gRPC; a server that refuses it is not believed to be empty.
func TestPushNeedsToken(t *testing.T) {
	f := newFake(t, true)
	f.token, f.early = "s3cret", 0
	f.write("orders", "192.0.2.1")
	h := f.follow(time.Hour, map[string]string{registries.NacosUsername: "u", registries.NacosPassword: "p"})
	h.want(t, "list G@@orders: 192.0.2.1")
	f.mu.Lock()
	f.token = "another"
	f.send(nil)
	f.mu.Unlock()
	h.want(t, "lost 127.0.0.1:")
	if got := h.want(t, "lost the token is not accepted any more"); strings.Contains(got, "s3cret") {
		t.Errorf("the error has the token: %s", got)
	}
	h.want(t, "list G@@orders: 192.0.2.1")
}

// TestPushRefused: a server that refuses a reader without a user is no empty one, and is not asked in another way.
func TestPushRefused(t *testing.T) {
	f := newFake(t, true)
	f.token, f.early = "s3cret", 0
	h := f.follow(10*time.Millisecond, nil)
	h.want(t, "refused 127.0.0.1:")
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.asked, func(s string) bool { return strings.HasPrefix(s, "HTTP") }) {
		t.Errorf("asked %q", f.asked)
	}
}

// TestAnswers holds how answers over gRPC are judged.
func TestAnswers(t *testing.T) {
	for body, want := range map[string]string{
		`{"resultCode": 200}`: "", `{"resultCode": 500, "errorCode": 403, "message": "no"}`: "403", `{"resultCode": 500, "errorCode": 301}`: "301", `{"resultCode": 500}`: "500",
		`{}`: "0", ``: "cannot be read", `[]`: "cannot be read",
	} {
		err := decodeAnswer(&payload{kind: "XResponse", body: []byte(body)}, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		if registries.IsRefusal(err) != (want == "403") {
			t.Errorf("%s: refusal %v", body, err)
		}
	}
	if reply, _, is := answerTo(&payload{kind: "SetupAckResponse", body: []byte("{}")}); reply != nil || is != nil {
		t.Errorf("an answer is answered with %v, %v", reply, is)
	}
}

// FuzzPayload: no message of a server breaks the reader, and a message that is encoded is decoded to the same one.
func FuzzPayload(f *testing.F) {
	whole, err := codec{}.Marshal(&payload{kind: notify, headers: map[string]string{"a": "b"}, body: []byte(`{"requestId": "1", "serviceInfo": {"name": "G@@a", "lastRefTime": 5, "hosts": [{"ip": "192.0.2.1"}]}}`)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte{0x12, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		var p payload
		if (codec{}).Unmarshal(data, &p) != nil {
			return
		}
		_ = decodeAnswer(&p, &struct{}{})
		reply, l, is := answerTo(&p)
		if reply != nil && !json.Valid(reply.body) {
			t.Errorf("the answer is %s", reply.body)
		}
		if is != nil {
			decode(l, "public", []byte(is.body))
		}
		again, err := codec{}.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		var q payload
		if err := (codec{}).Unmarshal(again, &q); err != nil || q.kind != p.kind || string(q.body) != string(p.body) {
			t.Errorf("%+v has become %+v, %v", p, q, err)
		}
	})
}
