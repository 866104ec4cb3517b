package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/run"
)

// versions are the versions of everything. The fields have the names that istioctl gives them.
type versions struct {
	Client  run.Build    `json:"clientVersion"`
	Planes  []plane      `json:"meshVersion,omitempty"`
	Proxies []proxyCount `json:"dataPlaneVersion,omitempty"`
}

// plane is a control plane.
type plane struct {
	Address string    `json:"address"`
	Build   run.Build `json:"info"`
}

// proxyCount is the number of proxies of a version.
type proxyCount struct {
	// Version is the release of Istio that the agents name, and Envoy the version of their Envoys; empty if proxies do not report it.
	Version string `json:"version,omitempty"`
	Envoy   string `json:"envoy,omitempty"`
	Proxies int    `json:"proxies"`
}

func versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program, of control planes and of their proxies",
		Long: `version shows the versions of pilotctl, of the control plane, and of the proxies that are connected to it: how many proxies have
which version. The version of a proxy is the release of Istio that its agent is compatible with, and the version of its Envoy.

Each replica of a control plane knows its own proxies; name all replicas with --address to count all proxies.

If no control plane responds and neither --address nor --remote is given, only the version of pilotctl is shown.

Exit codes: 0 success; 1 a control plane that --address or --remote asks for does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl version
  pilotctl version --remote=false --short
  pilotctl version --address http://10.0.0.7:8080,http://10.0.0.8:8080
  pilotctl version -o json | jq -r '.dataPlaneVersion[] | "\(.proxies) \(.envoy)"'`,
		Args: cobra.NoArgs,
	}
	addresses := c.Flags().StringSlice("address", []string{"http://127.0.0.1:8080"}, "addresses of the control planes' pages (their --httpAddr), separated by commas")
	asks := c.Flags().Bool("remote", true, "show control planes and proxies as well")
	short := c.Flags().BoolP("short", "s", false, "show only the numbers of versions")
	form := addOutput(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		v, wanted := versions{Client: run.ReadBuild()}, cmd.Flags().Changed("address") || cmd.Flags().Changed("remote")
		var missing error
		if *asks {
			if missing = v.ask(cmd.Context(), *addresses); missing != nil && wanted {
				return missing
			}
		}
		w := cmd.OutOrStdout()
		if *form != text {
			return write(w, *form, v)
		}
		if err := v.table(w, *short); err != nil || missing == nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no control plane at %s: name one with --address, or write --remote=false\n", (*addresses)[0])
		return err
	}
	return c
}

// ask reads the versions of control planes and their proxies.
func (v *versions) ask(ctx context.Context, addresses []string) error {
	counts := map[proxyCount]int{}
	for _, address := range addresses {
		p := plane{Address: address}
		if err := get(ctx, address, "/version", nil, &p.Build); err != nil {
			return err
		}
		v.Planes = append(v.Planes, p)
		var list []admin.Sync
		if err := get(ctx, address, "/debug/syncz", url.Values{}, &list); err != nil {
			return err
		}
		for _, one := range list {
			counts[proxyCount{Version: one.Version, Envoy: one.Envoy}]++
		}
	}
	for of, n := range counts {
		of.Proxies = n
		v.Proxies = append(v.Proxies, of)
	}
	slices.SortFunc(v.Proxies, func(a, b proxyCount) int {
		return cmp.Or(-cmp.Compare(a.Proxies, b.Proxies), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Envoy, b.Envoy))
	})
	return nil
}

// table writes the versions for people.
func (v *versions) table(w io.Writer, short bool) error {
	p, t := painter(w), tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	shown := func(b run.Build) string {
		if short {
			return b.Version
		}
		return b.String()
	}
	fmt.Fprintf(t, "client\t%s\n", shown(v.Client))
	for _, one := range v.Planes {
		line := shown(one.Build)
		if len(v.Planes) > 1 {
			line += " at " + one.Address
		}
		if one.Build.Version != v.Client.Version {
			line += " " + p.in(yellow, "(another version than the client)")
		}
		fmt.Fprintf(t, "control plane\t%s\n", line)
	}
	for n, one := range v.Proxies {
		label := ""
		if n == 0 {
			label = "proxies"
		}
		fmt.Fprintf(t, "%s\t%d of version %s, Envoy %s\n", label, one.Proxies, cmp.Or(one.Version, "unknown"), cmp.Or(one.Envoy, "unknown"))
	}
	if len(v.Planes) > 0 && len(v.Proxies) == 0 {
		fmt.Fprint(t, "proxies\tnone is connected\n")
	}
	return t.Flush()
}
