package listener

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/extension"
)

// filters are the filters before the last ones, which forward: the policies about requests, and what users add, by phase between these.
type filters struct {
	decide authz.Filters
	added  extension.Filters
}

// http are the filters for requests at a port; 0 if it is not known.
func (f filters) http(port uint32) []*hcmv3.HttpFilter {
	custom, tokens, policies := f.decide.Parts()
	return slices.Concat(custom, f.added.HTTP(extension.Authentication, port), tokens, f.added.HTTP(extension.Authorization, port), policies,
		f.added.HTTP(extension.Rest, port))
}

// tcp are the filters for connections other than HTTP at a port; 0 if it is not known.
func (f filters) tcp(port uint32) []*listenerv3.Filter {
	custom, policies := f.decide.TCPParts()
	return slices.Concat(custom, f.added.Network(extension.Authentication, port), f.added.Network(extension.Authorization, port), policies,
		f.added.Network(extension.Rest, port))
}

// network are the filters for connections that users add, where requests are decided about later, or not at all.
func (f filters) network(port uint32) (list []*listenerv3.Filter) {
	for _, phase := range []extension.Phase{extension.Authentication, extension.Authorization, extension.Rest} {
		list = append(list, f.added.Network(phase, port)...)
	}
	return list
}
