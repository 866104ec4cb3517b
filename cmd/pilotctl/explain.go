package main

import (
	"context"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/xds/explain"
)

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain PROXY host|cluster|listener|route|endpoint NAME",
		Short: "Say what something a proxy has is made of, or why it does not have it",
		Long: `explain says of one proxy:

  host      everything about a host: which declarations, routes and policies count and which do not, and the proxy's
            listener, virtual host, clusters and endpoints for each of its ports
  cluster   what one resource is made of: the objects, where they stand, and the revision that last changed them
  listener
  route
  endpoint

Of what the proxy does not have it says why not: nobody declares it, it is not exported to the proxy's namespace, a
Sidecar hides it, an older declaration counts, the port is not HTTP, no workload is selected, the proxy rejected it ...
and what to change where.

PROXY is a proxy's name (reviews-1.shop), the beginning of it, its node id, or a part of that, if only one proxy fits.
NAME is the name of a resource, as proxy-config and Envoy show them; a host, short or in full, for all resources of that
type for it; and for a route also HOST:PORT.

It exits with 0 if the proxy has it, 1 if it does not or holds it back, 2 if it was called wrongly.`,
		Example: `  pilotctl explain web-1.shop host reviews
  pilotctl explain web-1 cluster 'outbound|9080|v2|reviews.shop.svc.cluster.local'
  pilotctl explain web-1 route reviews:9080
  pilotctl explain web-1 endpoint reviews -o json | jq '.reasons'`,
		Args: cobra.ExactArgs(3),
	}
	address, form := remote(c), addOutput(c)
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return proxyNames(cmd.Context(), *address), cobra.ShellCompDirectiveNoFileComp
		case 1:
			return explain.Kinds(), cobra.ShellCompDirectiveNoFileComp
		case 2:
			return thingNames(cmd.Context(), *address, args[0], args[1], typed), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var a explain.Answer
		query := url.Values{"proxyID": {args[0]}, "kind": {args[1]}, "name": {args[2]}}
		if err := get(cmd.Context(), *address, "/debug/explain", query, &a); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		show := a.Write
		if *form != text {
			show = func(w io.Writer) error { return write(w, *form, a) }
		}
		if err := show(w); err != nil {
			return err
		}
		if a.Verdict != explain.Served {
			return run.ErrFailed
		}
		return nil
	}
	return c
}

// completing bounds how long a shell waits for names.
const completing = 2 * time.Second

// proxyNames are the names of the connected proxies; none if the control plane cannot be asked.
func proxyNames(ctx context.Context, address string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, completing)
	defer cancel()
	var list []admin.Sync
	if get(ctx, address, "/debug/syncz", nil, &list) != nil {
		return nil // a shell has no place for an error
	}
	for _, one := range list {
		names = append(names, one.Proxy)
	}
	return names
}

// thingNames are the names of what one can ask about.
func thingNames(ctx context.Context, address, proxy, kind, prefix string) []string {
	ctx, cancel := context.WithTimeout(ctx, completing)
	defer cancel()
	var list admin.Names
	if get(ctx, address, "/debug/explain", url.Values{"proxyID": {proxy}, "kind": {kind}, "prefix": {prefix}}, &list) != nil {
		return nil
	}
	return list.Names
}
