package relay

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
)

type (
	controlStream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	envoyStream   = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
)

// bubble is a relay between an Envoy and a control plane that a test plays, in memory and with a simulated clock.
type bubble struct {
	*testing.T
	path    string // of the store
	store   *lastgood.Store
	relay   *Relay
	dialer  *upstream.Dialer
	envoy   *grpc.ClientConn
	streams chan controlStream
	drop    chan struct{} // ends the oldest stream of the control plane

	certificate atomic.Pointer[tls.Certificate] // of the agent

	mu       sync.Mutex
	away     bool
	attempts []time.Time
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

// DeltaAggregatedResources implements the control plane: the test itself uses the stream.
func (b *bubble) DeltaAggregatedResources(s controlStream) error {
	b.streams <- s
	select {
	case <-b.drop:
		return status.Error(codes.Unavailable, "the control plane goes down")
	case <-s.Context().Done():
		return nil
	}
}

func (b *bubble) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// file writes a file of the agent.
func (b *bubble) file(name, text string) string {
	b.Helper()
	b.must(os.WriteFile(name, []byte(text), 0o600))
	return name
}

// newBubble must be called, and the function that it returns, in a bubble of synctest.
func newBubble(t *testing.T) (b *bubble, end func()) {
	t.Helper()
	dir := t.TempDir()
	b = &bubble{T: t, streams: make(chan controlStream, 100), drop: make(chan struct{}), path: filepath.Join(dir, "f")}
	b.store = b.reopened()
	b.store.Finish(keptTypes()...)
	certificate := selfSigned(b)
	b.certificate.Store(&certificate)
	up, down := bufconn.Listen(1<<20), bufconn.Listen(1<<20)
	control := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(control, b)
	b.dialer = &upstream.Dialer{
		Address: "pilot.test:15012", TokenFile: b.file(filepath.Join(dir, "token"), "first"), Certificate: b.certificate.Load,
		RootsFile: b.file(filepath.Join(dir, "roots"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))),
		Connect: func(ctx context.Context, _ string) (net.Conn, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.attempts = append(b.attempts, time.Now())
			if b.away {
				return nil, errors.New("connection refused")
			}
			return up.DialContext(ctx)
		},
	}
	b.relay = New(Options{Dialer: b.dialer, Store: b.store, Log: slog.New(slog.DiscardHandler)})
	server := b.relay.Server()
	go func() { _ = control.Serve(up) }()
	go func() { _ = server.Serve(down) }()
	var err error
	b.envoy, err = grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return down.DialContext(ctx) }))
	b.must(err)
	return b, func() {
		b.must(b.envoy.Close())
		server.Stop()
		if spare := b.relay.spare.Load(); spare != nil {
			b.must(spare.Close())
		}
		control.Stop()
	}
}

// reopened is the store of an agent that starts now.
func (b *bubble) reopened() *lastgood.Store {
	return lastgood.Open(b.path, "node", slog.New(slog.DiscardHandler))
}

// restart empties the store.
func (b *bubble) restart() {
	b.Helper()
	b.store = b.reopened()
	b.relay.store = b.store
}

// stored writes the store.
func (b *bubble) stored() {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	b.must(b.store.Run(ctx))
}

// selfSigned is a certificate that serves all sides.
func selfSigned(b *bubble) tls.Certificate {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"pilot.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	b.must(err)
	leaf, err := x509.ParseCertificate(der)
	b.must(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// pass lets time pass.
func (b *bubble) pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// expire makes the certificate of the agent expire.
func (b *bubble) expire() {
	expired, leaf := *b.certificate.Load(), *b.certificate.Load().Leaf
	leaf.NotAfter = time.Now()
	expired.Leaf = &leaf
	b.certificate.Store(&expired)
}

// dials returns when connections were tried since a time.
func (b *bubble) dials(since time.Time) (list []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.attempts {
		if !at.Before(since) {
			list = append(list, at)
		}
	}
	return list
}

// leave makes the control plane unreachable for new connections, or reachable again.
func (b *bubble) leave(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// open opens a stream of an Envoy that has clusters such as a@1.
func (b *bubble) open(has string) envoyStream { return b.openUntil(b.Context(), has) }

func (b *bubble) openUntil(ctx context.Context, has string) envoyStream {
	b.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(b.envoy).DeltaAggregatedResources(ctx)
	b.must(err)
	q := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: clusterURL, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: map[string]string{}}
	for _, word := range strings.Fields(has) {
		name, version, _ := strings.Cut(word, "@")
		q.InitialResourceVersions[name] = version
	}
	if err := s.Send(q); !errors.Is(err, io.EOF) { // with EOF the stream has ended already, and Recv returns why
		b.must(err)
	}
	return s
}

// asked returns the next stream of the control plane, and its first request.
func (b *bubble) asked() (controlStream, string) {
	b.Helper()
	s := <-b.streams
	q, err := s.Recv()
	b.must(err)
	if q.GetNode().GetId() != "n" {
		b.Errorf("the first request of a stream has no node: %v", q)
	}
	return s, asks(q)
}

// exchange has the control plane send clusters, and Envoy acknowledge them.
func (b *bubble) exchange(c controlStream, e envoyStream, nonce, words string, removed ...string) {
	b.Helper()
	b.must(c.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterURL, Nonce: nonce, Resources: clusters(b.T, words), RemovedResources: removed}))
	a, err := e.Recv()
	b.must(err)
	b.must(e.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterURL, ResponseNonce: a.GetNonce()}))
	if q, err := c.Recv(); err != nil || q.GetResponseNonce() != nonce {
		b.Fatalf("%v, %v; want the acknowledgement of %s", q, err, nonce)
	}
}

// given checks the response that Envoy gets from the store.
func (b *bubble) given(e envoyStream, want string) {
	b.Helper()
	if a, err := e.Recv(); err != nil || says(a) != want || !strings.HasPrefix(a.GetNonce(), localNonce) {
		b.Fatalf("%v, %v; want %s", a, err, want)
	}
}

// ended waits until a stream of Envoy ends.
func (b *bubble) ended(e envoyStream) {
	b.Helper()
	if a, err := e.Recv(); status.Code(err) != codes.Unavailable {
		b.Fatalf("%v, %v; want the end of the stream", a, err)
	}
}

// TestHourAlone: the control plane is gone for an hour, in which the certificate expires, and the token is missing for a while. The relay
// tries again at bounded intervals, serves the kept configuration to an Envoy that starts again, and connects once when it can.
func TestHourAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		e := b.open("")
		c, _ := b.asked()
		b.exchange(c, e, "1", "a@1 b@1")
		b.pass(time.Minute)
		b.leave(true)
		gone := time.Now()
		b.drop <- struct{}{}
		b.ended(e)
		e = b.open("a@1 b@1")
		b.pass(10 * time.Minute)
		b.expire()
		b.pass(10 * time.Minute)
		b.must(os.Remove(b.dialer.TokenFile))
		b.pass(20 * time.Minute)
		b.file(b.dialer.TokenFile, "second")
		b.pass(10 * time.Minute)
		b.must(e.CloseSend())
		began := time.Now()
		e = b.open("") // Envoy starts again
		b.given(e, "a@1 b@1 removed []")
		if took := time.Since(began); took != 0 {
			t.Errorf("an Envoy that starts anew is given what is kept after %v", took)
		}
		b.pass(10 * time.Minute)
		checkPauses(t, b.dials(gone.Add(time.Minute)))
		if since, stale := b.relay.Stale(); !stale || since.Sub(gone) > 2*time.Second || b.store.State().Resources != 2 {
			t.Errorf("stale since %v (%v), with %d resources", since, stale, b.store.State().Resources)
		}
		b.leave(false)
		began = time.Now()
		b.ended(e)
		e = b.open("a@1 b@1")
		c, asked := b.asked()
		if took := time.Since(began); took > 2*lastRetry || asked != `subscribe [*] unsubscribe [] has [a@1 b@1] nonce ""` {
			t.Errorf("after %v the control plane is asked: %s", took, asked)
		}
		if got := metadata.ValueFromIncomingContext(c.Context(), "authorization"); strings.Join(got, " ") != "Bearer second" {
			t.Errorf("the agent shows %v", got)
		}
		b.exchange(c, e, "2", "b@2", "a")
		b.pass(time.Minute)
		if list := b.dials(began); len(list) != 1 || len(b.streams) != 0 || b.store.State().Resources != 1 {
			t.Errorf("%d connections, %d streams, %d resources", len(list), len(b.streams), b.store.State().Resources)
		}
	})
}

// checkPauses checks the times between attempts of an agent that has been alone for long, except for attempts without a token.
func checkPauses(t *testing.T, dials []time.Time) {
	t.Helper()
	long := 0
	for i := range len(dials) - 1 {
		pause := dials[i+1].Sub(dials[i])
		if pause < lastRetry/2 {
			t.Errorf("the control plane is tried again after %v", pause)
		}
		if pause > 3*lastRetry/2 {
			long++
		}
	}
	if long > 1 || len(dials) < 50 { // without a token nothing is tried
		t.Errorf("there are %d long pauses between %d attempts", long, len(dials))
	}
}

// TestFlapping: the control plane accepts streams and ends them at once, before it has answered or after. The relay asks it less and less
// often, serves the kept configuration, and forgets neither that nor Envoy's requests.
func TestFlapping(t *testing.T) {
	for name, answers := range map[string]bool{"before an answer": false, "after an answer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { flapping(t, answers) })
		})
	}
}

func flapping(t *testing.T, answers bool) {
	b, end := newBubble(t)
	defer end()
	e := b.open("")
	c, _ := b.asked()
	b.exchange(c, e, "1", "a@1 b@1")
	b.pass(time.Minute)
	b.drop <- struct{}{}
	b.ended(e)
	began, streams := time.Now(), 0
	for time.Since(began) < 10*time.Minute && streams < 1000 {
		e = b.open("a@1 b@1")
		synctest.Wait()
		select {
		case c = <-b.streams:
			streams++
			if q, err := c.Recv(); err != nil || asks(q) != `subscribe [*] unsubscribe [] has [a@1 b@1] nonce ""` {
				t.Fatalf("%v, %v", q, err)
			}
			if answers {
				b.exchange(c, e, "2", "")
			}
			b.drop <- struct{}{}
		default: // the relay waits
		}
		b.ended(e)
	}
	if streams < 140 || streams > 320 { // with pauses of 3 s in the end
		t.Fatalf("the control plane was asked %d times", streams)
	}
	ctx, exits := context.WithCancel(t.Context())
	b.given(b.openUntil(ctx, ""), "a@1 b@1 removed []")
	exits()
	synctest.Wait()
	for len(b.streams) > 0 {
		<-b.streams // of the Envoy that has exited
	}
	b.lasts(b.open("a@1 b@1"))
}

// lasts checks that streams last now, and that the next one that ends is replaced at once.
func (b *bubble) lasts(e envoyStream) {
	b.Helper()
	if b.relay.backoff.left() > 0 {
		b.ended(e)
		e = b.open("a@1 b@1")
	}
	c, _ := b.asked()
	b.exchange(c, e, "3", "b@2")
	b.pass(2 * lasting)
	b.drop <- struct{}{}
	b.ended(e)
	began := time.Now()
	e = b.open("a@1 b@2")
	if _, asked := b.asked(); asked != `subscribe [*] unsubscribe [] has [a@1 b@2] nonce ""` || time.Since(began) > 0 {
		b.Errorf("after %v: %s", time.Since(began), asked)
	}
	b.drop <- struct{}{}
	b.ended(e)
	if left := b.relay.backoff.left(); left > 3*firstRetry/2 {
		b.Errorf("the first pause after a stream that has lasted is %v", left)
	}
}

// TestTwoEnvoys: while one Envoy takes over from another, each has a stream of its own. What both acknowledge is kept, and the end of the
// earlier one changes nothing for the later one.
func TestTwoEnvoys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		ctx, exits := context.WithCancel(t.Context())
		parent := b.openUntil(ctx, "")
		first, _ := b.asked()
		b.exchange(first, parent, "1", "a@1 b@1")
		child := b.open("")
		b.given(child, "a@1 b@1 removed []")
		second, asked := b.asked()
		if asked != `subscribe [*] unsubscribe [] has [a@1 b@1] nonce ""` {
			t.Error(asked)
		}
		b.exchange(second, child, "1", "b@2 c@1")
		b.exchange(first, parent, "2", "b@2", "a")
		b.exchange(second, child, "2", "", "a")
		exits()
		b.pass(time.Second)
		if first.Context().Err() == nil || second.Context().Err() != nil {
			t.Errorf("the streams of the control plane: %v, %v", first.Context().Err(), second.Context().Err())
		}
		b.exchange(second, child, "3", "c@2")
		if got := written(b.store.All(clusterURL)); got != "b@2 c@2" {
			t.Errorf("%s is kept", got)
		}
		if _, stale := b.relay.Stale(); stale {
			t.Error("it is stale because one stream has ended")
		}
	})
}

// TestTwoAlone: two streams of Envoy do not ask a control plane that cannot be reached more often than one.
func TestTwoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		b.store.Accept(clusterURL, clusters(t, "a@1"), nil)
		b.leave(true)
		for range 5 {
			b.given(b.open(""), "a@1 removed []")
		}
		b.pass(10 * time.Minute)
		if n := len(b.dials(time.Now().Add(-5 * time.Minute))); n < 10 || n > 40 { // one every 15 s
			t.Errorf("%d attempts in 5 minutes", n)
		}
	})
}

// TestRefusedCertificate: an agent whose certificate the control plane does not accept shows its token, until it has another certificate.
func TestRefusedCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		shows := func() string {
			t.Helper()
			conn, err := b.dialer.Dial()
			b.must(err)
			b.must(conn.Close())
			return conn.Shows
		}
		e := b.open("")
		b.asked()
		b.drop <- struct{}{} // as after a refused certificate
		b.ended(e)
		if got := shows(); got != "token" {
			t.Errorf("after the end of the stream the agent shows its %s", got)
		}
		b.pass(lastDropped)
		e = b.open("")
		c, _ := b.asked()
		b.exchange(c, e, "1", "a@1")
		if got := shows(); got != "token" {
			t.Errorf("after a stream that was accepted the agent shows its %s", got)
		}
		renewed := selfSigned(b)
		b.certificate.Store(&renewed)
		if got := shows(); got != "certificate" {
			t.Errorf("with another certificate the agent shows its %s", got)
		}
	})
}
