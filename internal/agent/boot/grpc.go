package boot

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// inboundListener is the name of the listener of a server, in which gRPC replaces %s by the server's address. Control planes of Istio's
// architecture serve it under this name.
const inboundListener = "xds.istio.io/grpc/lds/inbound/%s"

// certificateRefresh is how often gRPC reads certificate files again.
const certificateRefresh = "900s"

// Files are the paths of the workload's certificate, its key, and the roots of the mesh.
type Files struct{ Certificate, Key, Roots string }

// GRPC returns the bootstrap of a gRPC library that is its own data plane, as JSON
// (grpc.github.io/grpc/core/md_doc_grpc_xds_bootstrap_format.html). Without a certificate in files the library has none.
func (c Config) GRPC(f Files) ([]byte, error) {
	paths := []*string{&c.Relay, &f.Certificate, &f.Key, &f.Roots}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path) // the library runs in another directory
		if err != nil {
			return nil, fmt.Errorf("bootstrap of gRPC: %w", err)
		}
		*path = absolute
	}
	metadata := c.Node.GetMetadata().AsMap()
	if metadata["GENERATOR"] == nil {
		metadata["GENERATOR"] = "grpc"
	}
	type object = map[string]any
	locality := c.Node.GetLocality()
	bootstrap := object{
		"xds_servers": []any{object{
			"server_uri": "unix://" + c.Relay, "channel_creds": []any{object{"type": "insecure"}}, "server_features": []any{"xds_v3"},
		}},
		"node": object{
			"id": c.Node.GetId(), "cluster": c.Node.GetCluster(), "metadata": metadata,
			"locality": object{"region": locality.GetRegion(), "zone": locality.GetZone(), "sub_zone": locality.GetSubZone()},
		},
		"server_listener_resource_name_template": inboundListener,
	}
	if f.Certificate != "" {
		bootstrap["certificate_providers"] = object{"default": object{
			"plugin_name": "file_watcher",
			"config": object{
				"certificate_file": f.Certificate, "private_key_file": f.Key, "ca_certificate_file": f.Roots, "refresh_interval": certificateRefresh,
			},
		}}
	}
	text, err := json.MarshalIndent(bootstrap, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("bootstrap of gRPC: %w", err)
	}
	return append(text, '\n'), nil
}
