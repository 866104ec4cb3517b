package relay

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
)

// TestIdle: an idle Envoy pings as often as its bootstrap says, and keeps its stream for an hour.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, end := newBubble(t)
		defer end()
		down := bufconn.Listen(1 << 20)
		server := b.relay.Server()
		go func() { _ = server.Serve(down) }()
		defer server.Stop()
		var connections int
		envoy, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				connections++
				return down.DialContext(ctx)
			}))
		b.must(err)
		defer func() { b.must(envoy.Close()) }()
		b.envoy, envoy = envoy, b.envoy // the bubble closes the one that it has at the end
		e := b.open("")
		c, _ := b.asked()
		b.exchange(c, e, "1", "a@1")
		b.pass(time.Hour)
		b.exchange(c, e, "2", "b@1")
		if connections != 1 || len(b.streams) != 0 {
			t.Errorf("%d connections, %d other streams", connections, len(b.streams))
		}
	})
}
