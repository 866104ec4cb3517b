package patch

import (
	"errors"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// Bootstrap returns what patches add to the bootstrap of an Envoy: their values, merged in their order. The patches are about the proxy, in
// whichever direction. The agent, which has the bootstrap itself, merges the result into it.
//
// The result alone must pass the validation that was generated for it, except that the agent has a resource monitor, which a patch of the
// overload manager need not repeat.
func Bootstrap(patches []*Patch) Result[*bootstrapv3.Bootstrap] {
	base := &bootstrapv3.Bootstrap{OverloadManager: &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{Name: "agent"}}}}
	result := apply(base, Place{}, patches, editing[*bootstrapv3.Bootstrap]{edit: (*run).bootstrap, check: checkBootstrap})
	result.Message = proto.CloneOf(result.Message)
	o := result.Message.GetOverloadManager()
	if o.ResourceMonitors = o.GetResourceMonitors()[1:]; proto.Size(o) == 0 {
		result.Message.OverloadManager = nil
	}
	return result
}

func (r *run) bootstrap(b *bootstrapv3.Bootstrap) (keep bool) {
	for i, p := range r.of(networking.EnvoyFilter_BOOTSTRAP) {
		r.do(i, func() error {
			if p.op != networking.EnvoyFilter_Patch_MERGE {
				return errOnlyMerge
			}
			return p.mergeInto(b)
		})
	}
	return true
}

// errOnlyMerge means that a patch wants to do something else with the bootstrap than to merge.
var errOnlyMerge = errors.New("the agent has the bootstrap, and it only merges: use the operation MERGE")

// checkBootstrap finds what the agent would not survive, or what belongs to it.
func checkBootstrap(b *bootstrapv3.Bootstrap) error {
	switch {
	case b.GetNode().GetId() != "":
		return errors.New("the id of the node belongs to the agent: the control plane knows the proxy by it")
	case b.GetAdmin().GetAddress() != nil:
		return errors.New("the address of the admin interface belongs to the agent: set another port with proxyAdminPort of ProxyConfig")
	}
	return nil
}
