package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	// Messages that patches of a bootstrap may have. The agent itself writes others.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/getaddrinfo/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/regex_engines/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/cgroup_memory/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/cpu_utilization/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/injected_resource/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/stat_sinks/graphite_statsd/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/stat_sinks/open_telemetry/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/watchdog/profile_action/v3"

	"github.com/pilotmesh/pilot/internal/xds/merge"
)

// Patched returns a bootstrap, which is JSON, with a patch merged into it. It fails if the patch takes away what the agent finds Envoy by, or if
// the result breaks a rule that a field declares.
func Patched(text []byte, patch *bootstrapv3.Bootstrap) ([]byte, error) {
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("the bootstrap that patches are to be merged into: %w", err)
	}
	id, admin := b.GetNode().GetId(), proto.CloneOf(b.GetAdmin().GetAddress())
	merge.Message(b, patch, false)
	switch {
	case b.GetNode().GetId() != id:
		return nil, errors.New("a patch changes the id of the node, by which the control plane knows the proxy")
	case !proto.Equal(b.GetAdmin().GetAddress(), admin):
		return nil, errors.New("a patch changes the address of the admin interface, which the agent uses")
	}
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("the patched bootstrap: %w", err)
	}
	out, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("the patched bootstrap: %w", err)
	}
	return indented(out)
}

// indented returns JSON with normalised white space: the encoder of protobuf varies it deliberately.
func indented(b []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return append(out.Bytes(), '\n'), nil
}
