package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	problempages "github.com/pilotmesh/pilot/doc/problems"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/api/spelling"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/run"
)

// explainHelp is the long help of the command.
const explainHelp = `explain describes for one proxy:

  host      a host: which declarations, routes and policies apply and which do not, and the proxy's listener, virtual
            host, clusters and endpoints for each port of the host. It shows where requests go: the share of each
            destination, its healthy endpoints and its endpoints without a connected proxy, how the proxy connects, and whether
            policies allow GET / by the account of the proxy
  cluster   the source of one resource: its objects, their files and lines, and the revision that last changed them
  listener
  route
  endpoint
  inbound   connections to a port of the workload: the mode of mutual TLS with the policy that sets it, the filter
            chains in order, and the policies about requests in the order in which Envoy evaluates them. NAME is the
            number of the port

If the proxy does not have it, explain says why, and what to change: it is not declared, it is not exported to the proxy's
namespace, a Sidecar does not import it, an older declaration takes precedence, the port is not HTTP, no workload is
selected, the proxy rejected it, and so on.

PROXY is the name of a proxy (reviews-1.shop), a prefix of the name, the node id, or a part of the node id, if only one
proxy matches. NAME is the name of a resource, as proxy-config and Envoy show it; or a host, short or fully qualified, for
all resources of that type for the host; for a route also HOST:PORT.

With a single argument, the code of a problem (route-no-subset), it prints the page of the code: what it means, an example, and the fix;
explain codes lists all.

A sidecar with hosts on demand gets a host with the first request of its workload for it; before, explain says that it has not asked for it yet.

Exit codes: 0 the proxy has it, or gets it on demand; 1 the proxy does not have it, or it is held back; 2 the command line is invalid.`

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain PROXY host|cluster|listener|route|endpoint|inbound NAME | CODE",
		Short: "Explain where a proxy's configuration comes from, or why it does not have it",
		Long:  explainHelp,
		Example: `  pilotctl explain web-1.shop host reviews
  pilotctl explain web-1 cluster 'outbound|9080|v2|reviews.shop.svc.cluster.local'
  pilotctl explain web-1 route reviews:9080
  pilotctl explain web-1 inbound 8080
  pilotctl explain web-1 endpoint reviews -o json | jq '.reasons'
  pilotctl explain ingress shop.example.com
  pilotctl explain gateway shop.example.com/cart
  pilotctl explain patch shop/limits
  pilotctl explain route-no-subset`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 3 {
				return nil
			}
			return fmt.Errorf("say what to explain: PROXY, then one of %s, then NAME; or the code of a problem", strings.Join(why.Kinds(), ", "))
		},
	}
	c.AddCommand(explainIngress(), explainGateway(), explainInjection(), explainPatch())
	address, form := remote(c), addOutput(c)
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return completeExplain(cmd.Context(), *address, args, typed), cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return explainCode(cmd.OutOrStdout(), *form, args[0])
		}
		var a reply.Answer
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
		if a.Verdict != reply.Served && a.Verdict != reply.NotAsked {
			return run.ErrFailed
		}
		return nil
	}
	return c
}

// explainCode says what a code means, or lists all codes.
func explainCode(w io.Writer, form, name string) error {
	found := code.All()
	if name != "codes" {
		one, ok := code.Find(code.Code(name))
		if !ok {
			names := make([]string, len(found))
			for i, e := range found {
				names[i] = string(e.Code)
			}
			hint := "pilotctl explain codes lists them"
			if near := spelling.Closest(name, names); near != "" {
				hint = "did you mean " + near + "?"
			}
			return run.Usage(fmt.Errorf("%q is not the code of a problem; %s. To explain what a proxy has, write PROXY, then one of %s, then NAME",
				name, hint, strings.Join(why.Kinds(), ", ")))
		}
		found = []code.Entry{one}
		if page, ok := problempages.Page(name); ok && form == text {
			_, err := io.WriteString(w, page)
			return err
		}
	}
	if form != text {
		return write(w, form, found)
	}
	for i, e := range found {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s)\n  means   %s\n  remedy  %s\n", e.Code, e.Level, e.Meaning, e.Remedy)
	}
	return nil
}

// completeExplain lists what the next argument of explain may be.
func completeExplain(ctx context.Context, address string, args []string, typed string) []string {
	switch len(args) {
	case 0:
		return console.ProxyNames(ctx, address)
	case 1:
		return why.Kinds()
	case 2:
		return console.ThingNames(ctx, address, args[0], args[1], typed)
	}
	return nil
}
