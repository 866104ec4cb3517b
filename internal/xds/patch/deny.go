package patch

import (
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
)

// denied is the name of the rule that denies where a patch about access was left out. Access logs show it.
const denied = "envoyfilter-left-out"

// denyConnections makes a listener close all connections.
func denyConnections(l *listenerv3.Listener) {
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{denied: {
		Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
		Principals:  []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}},
	}}}
	config, err := pack(&networkrbacv3.RBAC{Rules: rules, StatPrefix: denied})
	if err != nil {
		panic(err) // the message is constant
	}
	chains := l.GetFilterChains()
	if c := l.GetDefaultFilterChain(); c != nil {
		chains = append(slices.Clone(chains), c)
	}
	for _, c := range chains {
		f := &listenerv3.Filter{Name: "envoy.filters.network.rbac", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config}}
		c.Filters = slices.Insert(c.GetFilters(), 0, f)
	}
}

// denyRequests makes a virtual host refuse all requests.
func denyRequests(v *routev3.VirtualHost) {
	v.Routes, v.Matcher = []*routev3.Route{{
		Name: denied, Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 403}},
	}}, nil
	v.TypedPerFilterConfig = nil
}

// checkListener finds what Envoy refuses although each field is valid.
func checkListener(l *listenerv3.Listener) error {
	if l.GetName() == "" {
		return fmt.Errorf("the listener has no name")
	}
	if len(l.GetFilterChains()) == 0 && l.GetDefaultFilterChain() == nil && l.GetApiListener() == nil {
		return fmt.Errorf("the listener has no filter chain")
	}
	for _, c := range l.GetFilterChains() {
		if err := checkChain(c); err != nil {
			return err
		}
	}
	return checkChain(l.GetDefaultFilterChain())
}

func checkChain(c *listenerv3.FilterChain) error {
	for i, f := range c.GetFilters() {
		if last := i == len(c.GetFilters())-1; endsChain(string(f.GetTypedConfig().MessageName())) && !last {
			return fmt.Errorf("the filter %q is not the last one of its filter chain", f.GetName())
		}
		if err := checkRequests(f); err != nil {
			return err
		}
	}
	return nil
}
