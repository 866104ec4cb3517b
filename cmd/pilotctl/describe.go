package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin/summary"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/run"
)

func describeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "describe pod|service NAME[.NAMESPACE]",
		Aliases: []string{"desc"},
		Short:   "Show on one screen what applies to a pod or a service",
		Long: `describe shows the services of a pod, or a service: its ports and protocols, where requests go, the VirtualServices, DestinationRules and
other objects that it is made of with file and line, and the objects that have no effect; the mode of mutual TLS and the policies about requests at a workload;
the rules of gateways that lead to it; and the problems of all these objects.

A service is described as a proxy of its namespace sees it, or else any sidecar: which rules count depends on the client. pilotctl explain asks about
another proxy, and says more.

Exit codes: 0 success; 1 there is no such pod or service, or the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl describe pod reviews-1.shop
  pilotctl describe service reviews -n shop
  pilotctl x describe svc reviews.shop -o json | jq .problems`,
		Args: cobra.ExactArgs(2),
	}
	address, form := remote(c), addOutput(c)
	namespace := c.Flags().StringP("namespace", "n", "", `namespace of the pod or service, if NAME does not have it (default "default")`)
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		names := []string(nil)
		switch {
		case len(args) == 0:
			names = []string{"pod", "service"}
		case len(args) == 1 && describedKind(args[0]) == "pod":
			names = console.ProxyNames(cmd.Context(), *address)
		case len(args) == 1:
			names = console.ServiceNames(cmd.Context(), *address)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		kind := describedKind(args[0])
		if kind == "" {
			return run.Usage(fmt.Errorf("%q is nothing to describe; write pod or service", args[0]))
		}
		name, in := args[1], *namespace
		if dot := strings.LastIndexByte(name, '.'); in == "" && dot > 0 {
			name, in = name[:dot], name[dot+1:]
		}
		if in == "" {
			in = "default"
		}
		read := func(ctx context.Context, page string, query url.Values, v any) error {
			return get(ctx, *address, page, query, v)
		}
		s, err := summary.Of(cmd.Context(), read, kind, in, name)
		if err != nil {
			return err
		}
		return show(cmd.OutOrStdout(), *form, s, s.Write)
	}
	return c
}

// describedKind is the kind that a word means; empty if it means none.
func describedKind(word string) string {
	switch strings.ToLower(word) {
	case "pod", "pods", "po":
		return "pod"
	case "service", "services", "svc":
		return "service"
	}
	return ""
}
