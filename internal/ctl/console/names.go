package console

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
)

// Completing limits how long a shell waits for the completion of names.
const Completing = time.Second

// Proxies completes one argument that is the name of a proxy.
func Proxies(address *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ProxyNames(cmd.Context(), *address), cobra.ShellCompDirectiveNoFileComp
	}
}

// Objects completes one argument that is an object. write returns the argument for an object; empty for none.
func Objects(address *string, write func(admin.Object) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if len(args) == 0 {
			for _, o := range objectNames(cmd.Context(), *address) {
				if name := write(o); name != "" {
					names = append(names, name)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// ask reads a page for a completion; it reports whether there was an answer in time.
func ask(ctx context.Context, address, page string, query url.Values, v any) bool {
	ctx, cancel := context.WithTimeout(ctx, Completing)
	defer cancel()
	return Get(ctx, address, page, query, v) == nil
}

// ProxyNames returns the names of the connected proxies, or nil if the control plane does not respond.
func ProxyNames(ctx context.Context, address string) (names []string) {
	var list []admin.Sync
	ask(ctx, address, "/debug/syncz", nil, &list)
	for _, one := range list {
		names = append(names, one.Proxy)
	}
	return names
}

// ThingNames returns the names that can be explained.
func ThingNames(ctx context.Context, address, proxy, kind, prefix string) []string {
	var list admin.Names
	ask(ctx, address, "/debug/explain", url.Values{"proxyID": {proxy}, "kind": {kind}, "prefix": {prefix}}, &list)
	return list.Names
}

func objectNames(ctx context.Context, address string) (list []admin.Object) {
	ask(ctx, address, "/debug/configz", url.Values{"names": {""}}, &list)
	return list
}

// ServiceNames returns the services as NAME.NAMESPACE.
func ServiceNames(ctx context.Context, address string) (names []string) {
	for _, one := range services(ctx, address) {
		names = append(names, one.Name+"."+one.Namespace)
	}
	return sorted(names)
}

// DestinationNames returns the ports of services as HOST:PORT.
func DestinationNames(ctx context.Context, address string) (names []string) {
	for _, one := range services(ctx, address) {
		for _, host := range one.Hosts {
			for _, port := range one.Ports {
				names = append(names, fmt.Sprintf("%s:%d", host, port.Number))
			}
		}
	}
	return sorted(names)
}

func services(ctx context.Context, address string) (list []admin.Service) {
	ask(ctx, address, "/debug/registryz", nil, &list)
	return list
}

// NamespaceNames returns the namespaces of proxies and objects. A control plane that does not respond is asked once.
func NamespaceNames(ctx context.Context, address string) (names []string) {
	var list []admin.Sync
	if !ask(ctx, address, "/debug/syncz", nil, &list) {
		return nil
	}
	for _, one := range list {
		names = append(names, one.Proxy[strings.LastIndexByte(one.Proxy, '.')+1:])
	}
	for _, o := range objectNames(ctx, address) {
		if o.Namespace != "" {
			names = append(names, o.Namespace)
		}
	}
	return sorted(names)
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
