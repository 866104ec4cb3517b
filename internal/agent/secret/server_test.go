package secret

import (
	"context"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/run"
)

// client serves the fixture's board at a socket and returns a client of it, with a context that bounds the test.
func (w *fixture) client() (context.Context, secretv3.SecretDiscoveryServiceClient) {
	w.Helper()
	path := place(w.T)
	l := listenAt(w.T, path)
	server := grpc.NewServer()
	NewServer(w.board).Register(server)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	actor := run.GRPC("sds", l, server, func(context.Context) {}, 0)
	go func() { done <- actor.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	bounded, stop := context.WithTimeout(w.Context(), patience)
	w.Cleanup(stop)
	return bounded, secretv3.NewSecretDiscoveryServiceClient(conn)
}

// TestStream: over a real socket, a missing secret is refused, a new one is sent, a rejection by Envoy is reported, and the
// end of the stream ends its subscriptions.
func TestStream(t *testing.T) {
	w := newFixture(t, nil)
	ctx, client := w.client()
	name := rootsPrefix + w.path("ca.pem")
	st, err := client.StreamSecrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *discoveryv3.DiscoveryRequest) *discoveryv3.DiscoveryResponse {
		t.Helper()
		if err := st.Send(r); err != nil {
			t.Fatal(err)
		}
		resp, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	r := send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: []string{name}})
	refused := &rpcstatus.Status{}
	if len(r.GetResources()) != 1 || r.GetResources()[0].UnmarshalTo(refused) != nil || !strings.Contains(refused.GetMessage(), "no such file") {
		t.Fatalf("got %v", r)
	}
	w.put("ca.pem", newMaterial(t, "a", tomorrow()).cert)
	r = send(&discoveryv3.DiscoveryRequest{
		TypeUrl: typeURL, ResourceNames: []string{name}, ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "no secret"},
	})
	if len(r.GetResources()) != 1 || r.GetResources()[0].GetTypeUrl() != typeURL {
		t.Fatalf("got %v", r)
	}
	if err := st.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: typeURL, ResourceNames: []string{name}, ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "key too short"},
	}); err != nil {
		t.Fatal(err)
	}
	w.awaitThat(name, "refused", func(e Entry) bool { return e.Refusal == "key too short" && e.Streams == 1 })
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	w.awaitThat(name, "unwanted", func(e Entry) bool { return e.Streams == 0 })
}

// TestDeltaStream is like TestStream for the delta variant, with a client that vanishes.
func TestDeltaStream(t *testing.T) {
	w := newFixture(t, nil)
	ctx, client := w.client()
	ctx, vanish := context.WithCancel(ctx)
	defer vanish()
	name := rootsPrefix + w.path("ca.pem")
	st, err := client.DeltaSecrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{name}}); err != nil {
		t.Fatal(err)
	}
	r, err := st.Recv()
	if err != nil || len(r.GetRemovedResources()) != 1 || len(r.GetResources()) != 0 {
		t.Fatalf("%v, %v", r, err)
	}
	w.put("ca.pem", newMaterial(t, "a", tomorrow()).cert)
	r, err = st.Recv()
	if err != nil || len(r.GetRemovedResources()) != 0 || len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != name {
		t.Fatalf("%v, %v", r, err)
	}
	vanish()
	w.awaitThat(name, "unwanted", func(e Entry) bool { return e.Streams == 0 })
}

func TestFetch(t *testing.T) {
	w := newFixture(t, nil)
	ctx, client := w.client()
	w.put("ca.pem", newMaterial(t, "a", tomorrow()).cert)
	there, missing := rootsPrefix+w.path("ca.pem"), rootsPrefix+w.path("no.pem")
	for _, c := range []struct {
		typeURL string
		names   []string
		code    codes.Code
		want    string
	}{
		{typeURL, []string{there, there}, codes.OK, ""},
		{typeURL, []string{there, missing}, codes.NotFound, "no.pem: no such file"},
		{typeURL, nil, codes.InvalidArgument, "the request names no secret"},
		{"type.googleapis.com/x", []string{there}, codes.InvalidArgument, "only " + typeURL},
	} {
		r, err := client.FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{TypeUrl: c.typeURL, ResourceNames: c.names})
		if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) || err == nil && len(r.GetResources()) != 1 {
			t.Errorf("%q: %v, %v", c.names, r, err)
		}
	}
	st, err := client.StreamSecrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// TestManyNames: a stream may ask for many secrets; none waits for another.
func TestManyNames(t *testing.T) {
	w := newFixture(t, nil)
	ctx, client := w.client()
	w.put("ca.pem", newMaterial(t, "a", tomorrow()).cert)
	r := &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{rootsPrefix + w.path("ca.pem")}}
	for i := range 200 {
		r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, rootsPrefix+w.path("no"+time.Duration(i).String()))
	}
	st, err := client.DeltaSecrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(r); err != nil {
		t.Fatal(err)
	}
	have, removed := 0, 0
	for have+removed < 201 {
		r, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		have, removed = have+len(r.GetResources()), removed+len(r.GetRemovedResources())
	}
	if have != 1 {
		t.Errorf("%d secrets, %d missing", have, removed)
	}
}
