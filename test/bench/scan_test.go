package main

import (
	"fmt"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// cut makes buffers of arbitrary sizes of a message, as the network might.
func cut(t *rapid.T, b []byte) mem.BufferSlice {
	var parts mem.BufferSlice
	for len(b) > 0 {
		n := rapid.IntRange(1, min(len(b), 40)).Draw(t, "size")
		parts = append(parts, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return parts
}

// TestScan compares the result of scan with the message that the protobuf library encoded.
func TestScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := variant(rapid.IntRange(0, 1).Draw(t, "variant"))
		text := rapid.StringMatching(`[a-z|.]{0,200}`)
		removed := rapid.SliceOfN(text, 0, 4).Draw(t, "removed")
		nonce := text.Draw(t, "nonce")
		var names []string
		var msg proto.Message
		d := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: resource.Cluster.URL(), Nonce: nonce, RemovedResources: removed, SystemVersionInfo: "x"}
		s := &discoveryv3.DiscoveryResponse{TypeUrl: resource.Cluster.URL(), Nonce: nonce, VersionInfo: "version"}
		for i := range rapid.IntRange(0, 5).Draw(t, "resources") {
			name := fmt.Sprint(text.Draw(t, "name"), i)
			packed, err := anypb.New(&clusterv3.Cluster{Name: name, AltStatName: text.Draw(t, "content")})
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
			d.Resources = append(d.Resources, &discoveryv3.Resource{Name: name, Version: "version-" + name, Resource: packed})
			s.Resources = append(s.Resources, packed)
		}
		if msg = d; v == sotw {
			msg, removed = s, nil
		}
		raw, err := proto.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := scan(v, cut(t, raw), &a, nil); err != nil {
			t.Fatal(err)
		}
		if a.bytes != len(raw) || a.resources != len(names) || a.removed != len(removed) || string(a.nonce) != nonce || a.typ != resource.Cluster {
			t.Fatalf("scanned %+v of %v", a, msg)
		}
		var found []string
		err = scan(v, cut(t, raw), &a, func(name, version []byte) {
			if v == delta && string(version) != "version-"+string(name) {
				t.Fatalf("resource %q has version %q", name, version)
			}
			found = append(found, string(name))
		})
		if err != nil || !slices.Equal(found, names) {
			t.Fatalf("found resources %q, want %q; error %v", found, names, err)
		}
	})
}

// TestScanBroken cuts a message off anywhere: an error, or less than there was, but no panic and no endless loop.
func TestScanBroken(t *testing.T) {
	packed, err := anypb.New(&clusterv3.Cluster{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: resource.Cluster.URL(), Nonce: "n", Resources: []*discoveryv3.Resource{{Name: "a", Version: "1", Resource: packed}},
	})
	if err != nil {
		t.Fatal(err)
	}
	broken := 0
	for n := range raw {
		var a answer
		if err := scan(delta, buffers(raw[:n]), &a, func(_, _ []byte) {}); err != nil {
			broken++
		}
	}
	if broken < len(raw)/2 {
		t.Errorf("only %d of %d truncated messages were refused", broken, len(raw))
	}
}
