package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// hostileRules: whatever a client sends, only it can suffer. In each a bystander must see changes before and after.
func hostileRules() []rule {
	return []rule{
		{name: "unknown-type", run: func(s *scene) {
			s.offends(func(p *peer) {
				p.send(client.Request{URL: "type.googleapis.com/foo.Bar", Subscribe: []string{"x"}, Names: []string{"x"}})
			})
		}},
		{name: "empty-type", run: func(s *scene) {
			s.offends(func(p *peer) { p.send(client.Request{Subscribe: []string{"x"}, Names: []string{"x"}}) })
		}},
		{name: "many-types", own: true, run: hostileManyTypes},
		{name: "no-node", run: func(s *scene) {
			s.strangers(nil)
			s.strangers(&corev3.Node{})
		}},
		{name: "node-id", run: hostileNodeID},
		{name: "metadata-types", run: hostileMetadataTypes},
		{name: "metadata-1mb", run: func(s *scene) { s.introduces(func(n *corev3.Node) { bloat(n, 1<<20) }) }},
		{name: "metadata-10mb", run: func(s *scene) { s.introduces(func(n *corev3.Node) { bloat(n, 10<<20) }) }},
		{name: "metadata-deep", run: func(s *scene) {
			for _, depth := range []int{50, 1000, 9000} {
				s.introduces(func(n *corev3.Node) { n.Metadata.Fields["DEEP"] = deep(depth) })
			}
			s.offendsFirst(func(p *peer) error { return p.SendRaw(deepNode(s.variant, 100_000)) })
		}},
		{name: "version-strings", run: hostileVersionStrings},
		{name: "node-extensions", run: func(s *scene) {
			s.introduces(func(n *corev3.Node) {
				for i := range 20_000 {
					n.Extensions = append(n.Extensions, &corev3.Extension{Name: fmt.Sprintf("envoy.extension.%d", i), Category: "envoy.filters.http", TypeUrls: []string{"envoy.Extension"}})
				}
			})
		}},
		{name: "100k-names", run: hostile100kNames},
		{name: "duplicate-names", run: hostileDuplicateNames},
		{name: "odd-names", run: hostileOddNames},
		{name: "sub-and-unsub", only: onlyDelta(), run: hostileSubAndUnsub},
		{name: "nack-detail", run: func(s *scene) {
			p := s.all()
			s.fence(p)
			s.must(p.Reject(p.last(client.CDS), strings.Repeat("because ", 128<<10)))
			s.put("policy.yaml", s.policy("a", 3))
			p.limited("a", 3)
		}},
		{name: "utf8", run: hostileUTF8},
		{name: "garbage", run: hostileGarbage},
		{name: "gzip", own: true, run: hostileGzip},
		{name: "not-grpc", run: hostileNotGRPC},
		{name: "wrong-method", wish: true, run: hostileWrongMethod},
	}
}

func hostileManyTypes(s *scene) {
	before := s.server.memory("VmRSS")
	s.offends(func(p *peer) {
		for i := range 10_000 {
			if p.Send(client.Request{URL: fmt.Sprintf("type.googleapis.com/foo.Bar%d", i), Subscribe: []string{"x"}, Names: []string{"x"}}) != nil {
				return // refused
			}
		}
	})
	if grown := s.server.memory("VmRSS") - before; grown > 48<<20 {
		s.Errorf("ten thousand types on one stream cost %d MiB", grown>>20)
	}
}

func hostileNodeID(s *scene) {
	for _, id := range []string{
		"", "~", "~~~", "sidecar", "sidecar~10.0.0.1", "sidecar~10.0.0.1~a.b~c~d", "sidecar~~~", "sidecar~no-address~a.b~b.svc.cluster.local",
		"sidecar~10.0.0.1~nodot~b.svc.cluster.local", "sidecar~10.0.0.1~.~b", "sidecar~10.0.0.1~a.~b", "nonsense~10.0.0.1~a.b~b.svc.cluster.local",
		"sidecar~10.0.0.1~../../etc/passwd~x", "sidecar~10.0.0.1~a.b\x00~b", strings.Repeat("x", 100_000), "sidecar~10.0.0.1~" + strings.Repeat("a.", 5000) + "b~c",
	} {
		s.introduces(func(n *corev3.Node) { n.Id = id })
	}
}

func hostileVersionStrings(s *scene) {
	for _, v := range []string{"", "1", "1.", "1.999999999999999999999.0", "-1.-1", "latest", "1.32.0-rc.1+" + strings.Repeat("x", 10_000), "☃", "%s%d\x00"} {
		s.introduces(func(n *corev3.Node) {
			n.Metadata.Fields["ISTIO_VERSION"] = structpb.NewStringValue(v)
			n.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: v}
		})
	}
}

func hostile100kNames(s *scene) {
	s.offendsFirst(func(p *peer) error {
		names := make([]string, 100_000)
		for i := range names {
			names[i] = fmt.Sprintf("outbound|80||s-%d.%.6s.test", i, s.ns)
		}
		p.Note(client.EDS, names...)
		return p.Send(client.Request{URL: client.EDS.URL(), Subscribe: names, Names: names})
	})
}

func hostileDuplicateNames(s *scene) {
	p := s.open()
	names := []string{s.fenceCluster()}
	for range 1000 {
		names = append(names, s.cluster("a"))
	}
	p.Note(client.EDS, s.cluster("a"), s.fenceCluster())
	p.send(client.Request{URL: client.EDS.URL(), Subscribe: names, Names: names})
	p.at("a", "10.1.0.1") // duplicates within a response are found in every test
	s.fence(p)
}

func hostileOddNames(s *scene) {
	p := s.open()
	odd := []string{"", strings.Repeat("x", 100_000), "\x00\x01\x02", "a\nb", "%s%n", "../../etc/passwd", "☃", " ", "outbound|80||", "outbound|999999||" + s.host("a"), "|||", "**"}
	names := append(odd, s.cluster("a"), s.fenceCluster())
	p.Note(client.EDS, names...)
	p.send(client.Request{URL: client.EDS.URL(), Subscribe: names, Names: names})
	p.at("a", "10.1.0.1")
	s.fence(p)
	for _, n := range odd {
		if len(p.addresses(n)) > 0 {
			s.Errorf("%.40q is the name of something", n)
		}
	}
}

func hostileSubAndUnsub(s *scene) {
	p := s.all()
	for _, t := range client.All() {
		name := map[client.Type]string{client.CDS: s.cluster("a"), client.EDS: s.cluster("a"), client.LDS: listenerT, client.RDS: routeHTTP}[t]
		p.send(client.Request{URL: t.URL(), Subscribe: []string{name}, Unsubscribe: []string{name}})
	}
	p.subscribe(client.EDS, s.cluster("a"))
	s.fence(p)
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"))
	p.at("a", "10.1.0.11")
}

func hostileWrongMethod(s *scene) {
	conn, err := grpc.NewClient(s.server.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	defer func() { _ = conn.Close() }()
	for _, method := range []string{
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/Nonsense", "/foo.Bar/Baz",
		"/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters",
	} {
		ctx, cancel := within(patience)
		defer cancel()
		if err := conn.Invoke(ctx, method, &structpb.Struct{}, &structpb.Struct{}); status.Code(err) != codes.Unimplemented {
			s.Errorf("%s: %v, want UNIMPLEMENTED", method, err)
		}
	}
}

// offends lets a served peer do something improper: it is ignored or refused cleanly, and a bystander does not notice.
func (s *scene) offends(act func(*peer)) {
	s.Helper()
	bystander, p := s.all(), s.all()
	s.fence(bystander, p)
	s.survives(p, "an improper request", func() { act(p) })
	s.fence(bystander)
}

// offendsFirst lets a peer begin with something improper: it is answered, ignored, or refused cleanly.
func (s *scene) offendsFirst(act func(*peer) error) {
	s.Helper()
	bystander, p := s.all(), s.open()
	s.fence(bystander)
	if err := act(p); err != nil && !ended(err) {
		s.Fatal(err)
	}
	s.fence(bystander)
	s.servedOrRefused(p)
	s.fence(bystander)
}

// servedOrRefused checks that a peer that has said something is either served from now on, or was refused cleanly.
func (s *scene) servedOrRefused(p *peer) {
	s.Helper()
	if err := p.Subscribe(client.CDS); err != nil && !ended(err) {
		s.Fatal(err)
	}
	ctx, cancel := within(patience)
	defer cancel()
	err := p.Await(ctx, func() bool { return len(p.Held(client.CDS)) > 0 })
	switch {
	case ended(err):
		s.clean("an improper first request", p)
	case err != nil:
		s.Errorf("neither served nor refused: %v", err)
	}
}

// introduces connects with a node that was changed: it is refused cleanly, or served.
func (s *scene) introduces(change func(*corev3.Node)) {
	s.Helper()
	n := node("client", s.ns)
	change(n)
	s.strangers(n)
}

func (s *scene) strangers(n *corev3.Node) {
	s.Helper()
	if len(s.peers) < 2 {
		s.all()
	}
	p := s.open(as(n))
	s.servedOrRefused(p)
	p.leave()
	// The bystander: the first peer was the scene's own.
	s.put("policy.yaml", s.policy("a", 100+len(s.peers)))
	s.peers[1].limited("a", 100+len(s.peers))
}

func hostileMetadataTypes(s *scene) {
	values := map[string]*structpb.Value{
		"a number": structpb.NewNumberValue(7), "a list": structpb.NewListValue(&structpb.ListValue{}), "null": structpb.NewNullValue(),
		"true": structpb.NewBoolValue(true), "an object": structpb.NewStructValue(&structpb.Struct{}), "nothing": {}, "a text": structpb.NewStringValue("{]"),
	}
	for _, v := range values {
		for _, key := range []string{"NAMESPACE", "LABELS", "INSTANCE_IPS", "CLUSTER_ID", "INTERCEPTION_MODE", "POD_PORTS"} {
			s.introduces(func(n *corev3.Node) { n.Metadata.Fields[key] = v })
		}
	}
	s.introduces(func(n *corev3.Node) { n.Metadata = nil })
}

func bloat(n *corev3.Node, size int) {
	for i := range 16 {
		n.Metadata.Fields[fmt.Sprintf("BIG_%d", i)] = structpb.NewStringValue(strings.Repeat("x", size/16))
	}
}

// deep is an object in an object in an object.
func deep(depth int) *structpb.Value {
	v := structpb.NewStringValue("bottom")
	for range depth {
		v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"d": v}})
	}
	return v
}

// deepNode is a first request whose metadata are nested deeper than codecs can make them.
func deepNode(v client.Variant, depth int) []byte {
	// Lists in lists: a Value's field 6 is a ListValue, whose field 1 are Values.
	sizes := make([]int, depth+1)
	for i := range depth {
		sizes[i+1] = 1 + protowire.SizeBytes(sizes[i])
	}
	var b []byte
	for i := depth; i > 0; i-- {
		b = protowire.AppendTag(b, []protowire.Number{6, 1}[(depth-i)%2], protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizes[i-1]))
	}
	entry := protowire.AppendTag(nil, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, "DEEP")
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendBytes(entry, b)
	fields := protowire.AppendTag(nil, 1, protowire.BytesType)
	fields = protowire.AppendBytes(fields, entry)
	n := protowire.AppendTag(nil, 1, protowire.BytesType)
	n = protowire.AppendString(n, "sidecar~10.0.0.1~client.deep~deep.svc.cluster.local")
	n = protowire.AppendTag(n, 3, protowire.BytesType) // metadata
	n = protowire.AppendBytes(n, fields)
	return request(v, n, client.CDS.URL())
}

// request encodes a first request by hand.
func request(v client.Variant, node []byte, url string) []byte {
	nodeField, urlField := protowire.Number(1), protowire.Number(2)
	if v == client.SotW {
		nodeField, urlField = 2, 4
	}
	b := protowire.AppendTag(nil, nodeField, protowire.BytesType)
	b = protowire.AppendBytes(b, node)
	b = protowire.AppendTag(b, urlField, protowire.BytesType)
	return protowire.AppendString(b, url)
}

// breaks sends bytes that are no request: the stream ends with an error.
func (s *scene) breaks(what string, bystander *peer, raw []byte, opts ...option) {
	s.Helper()
	for _, served := range []bool{false, true} {
		p := s.open(opts...)
		if served {
			p.subscribe(client.CDS)
			p.has(client.CDS, s.fenceCluster())
		}
		if err := p.SendRaw(raw); err != nil && !ended(err) {
			s.Fatal(err)
		}
		ctx, cancel := within(patience)
		defer cancel()
		why, err := p.End(ctx)
		switch {
		case err != nil:
			s.Errorf("%s: the stream goes on: %v", what, err)
		case errors.Is(why, io.EOF) || status.Code(why) == codes.Unavailable:
			s.Errorf("%s: the stream ended with %v, which says nothing", what, why)
		}
		p.leave()
	}
	s.fence(bystander)
}

func hostileUTF8(s *scene) {
	bystander := s.all()
	bad := "\xff\xfe\x80"
	url, nonce, name := protowire.Number(2), protowire.Number(6), protowire.Number(3)
	if s.variant == client.SotW {
		url, nonce = 4, 5
	}
	for _, f := range []struct {
		what  string
		field protowire.Number
	}{{"type_url", url}, {"response_nonce", nonce}, {"a name", name}} {
		good, err := client.Request{URL: client.CDS.URL(), Node: node("client", s.ns)}.Encode(s.variant)
		s.must(err)
		raw := protowire.AppendTag(good, f.field, protowire.BytesType)
		s.breaks(f.what+" that is not UTF-8", bystander, protowire.AppendString(raw, bad))
	}
	p := s.open()
	id := protowire.AppendTag(nil, 1, protowire.BytesType)
	s.must(p.SendRaw(request(s.variant, protowire.AppendString(id, "sidecar~10.0.0.1~a.b"+bad+"~x"), client.CDS.URL())))
	ctx, cancel := within(patience)
	defer cancel()
	if _, err := p.End(ctx); err != nil {
		s.Errorf("a node id that is not UTF-8: the stream goes on: %v", err)
	}
	s.fence(bystander)
}

func hostileGarbage(s *scene) {
	bystander := s.all()
	good, err := client.Request{URL: client.CDS.URL(), Node: node("client", s.ns), Subscribe: []string{client.Star}, Names: []string{client.Star}}.Encode(s.variant)
	s.must(err)
	noise := make([]byte, 4096)
	for range 4 {
		_, _ = rand.Read(noise) // it never fails
		noise[0] = 0xff         // no tag of anything
		s.breaks("random bytes", bystander, noise)
	}
	s.breaks("a truncated request", bystander, good[:len(good)-1])
	// The other variant's request may be read as an odd one of this variant: it is refused or ignored.
	other, err := client.Request{URL: client.CDS.URL(), Node: node("client", s.ns), Subscribe: []string{client.Star}, Names: []string{client.Star}}.Encode(1 - s.variant)
	s.must(err)
	p := s.open()
	s.must(p.SendRaw(other))
	s.fence(bystander)
	ctx, cancel := within(time.Second)
	defer cancel()
	if why, err := p.End(ctx); err == nil && status.Code(why) == codes.Unavailable {
		s.Errorf("the other variant's request: the stream ended with %v", why)
	}
	// A message that says it is longer than it is, and one longer than any server takes.
	for _, claim := range []int{len(good) + 100, 1 << 31} {
		w := s.wire(1 << 16)
		s.must(w.Begin(1, s.variant.Method()))
		s.must(w.Message(1, good, claim))
		s.fence(bystander)
		w.Close()
	}
	w := s.wire(1 << 16)
	_ = w.Raw(noise) // the server may be quicker to close than this is to write
	select {
	case <-w.Ended():
	case <-time.After(patience):
		s.Error("noise between frames: the connection goes on")
	}
	w.Close()
	s.fence(bystander)
}

func (s *scene) wire(window uint32) *client.Wire {
	s.Helper()
	ctx, cancel := within(patience)
	defer cancel()
	w, err := client.DialWire(ctx, s.server.GRPC, window)
	s.must(err)
	return w
}

// hostileGzip: a small message that would be a large one.
func hostileGzip(s *scene) {
	bystander := s.all()
	s.fence(bystander)
	before := s.server.memory("VmHWM")
	p := s.open(func(o *client.Options) { o.Call = append(o.Call, grpc.UseCompressor(gzip.Name)) })
	// Valid as a request, too: an unknown field of 64 MiB.
	bomb, err := client.Request{URL: client.CDS.URL(), Node: node("client", s.ns)}.Encode(s.variant)
	s.must(err)
	bomb = protowire.AppendTag(bomb, 1000, protowire.BytesType)
	bomb = protowire.AppendBytes(bomb, make([]byte, 64<<20))
	if err := p.SendRaw(bomb); err != nil && !ended(err) {
		s.Fatal(err)
	}
	ctx, cancel := within(patience)
	defer cancel()
	if why, err := p.End(ctx); err != nil {
		s.Errorf("a message of 64 MiB, compressed: the stream goes on: %v", err)
	} else if c := status.Code(why); c != codes.ResourceExhausted && c != codes.Unimplemented && c != codes.InvalidArgument {
		s.Errorf("a message of 64 MiB, compressed: the stream ended with %v", why)
	}
	if grown := s.server.memory("VmHWM") - before; grown > 40<<20 {
		s.Errorf("refusing a message of 64 MiB took %d MiB", grown>>20)
	}
	s.fence(bystander)
}

func hostileNotGRPC(s *scene) {
	bystander := s.all()
	noise := make([]byte, 1024)
	_, _ = rand.Read(noise) // it never fails
	for what, text := range map[string]string{
		"HTTP/1.1":    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"noise":       string(noise),
		"a TLS hello": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 200),
		"a long line": strings.Repeat("PRI * HTTP/2.0\r\n", 100),
	} {
		ctx, cancel := within(patience)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.server.GRPC)
		s.must(err)
		_, err = conn.Write([]byte(text))
		s.must(err)
		deadline, _ := ctx.Deadline()
		s.must(conn.SetDeadline(deadline))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			s.Errorf("%s: the connection goes on", what)
		}
		conn.Close()
		s.fence(bystander)
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
