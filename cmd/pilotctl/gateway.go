package main

import (
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/explain/analyze"
	"github.com/pilotmesh/pilot/internal/explain/entrance"
	"github.com/pilotmesh/pilot/internal/run"
)

func explainGateway() *cobra.Command {
	c := &cobra.Command{
		Use:   "gateway HOST[:PORT][/PATH]",
		Short: "Explain which gateway answers a request from outside, or why none does",
		Long: `gateway shows who answers a request that comes to the gateways of the mesh: the gateways, the server of a Gateway or Ingress that has
the host, its certificate and when it expires, the rules of VirtualServices and Ingresses that the request meets, in the order in which
they are tried, and their destinations with the number of healthy endpoints. If none answers, it shows why.

PORT is the port that clients connect to, as Gateways name it. Without it, all ports are shown; https://HOST means the port 443. With PATH,
only the rules that the request may meet are shown: all up to the first one that depends on nothing but the path.

Gateways are shown by their configuration: replicas with the same one are one entry. If no gateway with the labels of a Gateway is connected,
the entry is about the labels.

It asks a running control plane, or evaluates files (--filename).

Exit codes: 0 some gateway answers; 1 none answers, or the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl explain gateway shop.example.com
  pilotctl explain gateway https://shop.example.com/cart
  pilotctl explain gateway shop.example.com:8443/cart -f mesh/
  pilotctl explain gateway shop.example.com -o json | jq '.gateways[].servers[].certificates'`,
		Args: cobra.ExactArgs(1),
	}
	address, form := remote(c), addOutput(c)
	mesh := addFiles(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := entrance.Parse(args[0])
		if err != nil {
			return run.Usage(err)
		}
		var a entrance.Answer
		if all, offline, err := mesh.evaluate(cmd); err != nil {
			return err
		} else if offline {
			a = *all.Entrance(mesh.domain, q)
		} else if err := get(cmd.Context(), *address, "/debug/gatewayz", url.Values{"host": {args[0]}}, &a); err != nil {
			return err
		}
		if err := show(cmd.OutOrStdout(), *form, &a, a.Write); err != nil {
			return err
		}
		if !a.Served {
			return run.ErrFailed
		}
		return nil
	}
	return c
}

// getCommand lists what there is.
func getCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "get gateways|hosts",
		Short: "List gateways with their ports, or the hosts of gateways",
		Long: `get gateways lists the gateways by their configuration, with the ports where they listen. get hosts lists the hosts of Gateways and
Ingresses: for each port the object that has the host, the Secret of its certificate, and the claims that lost, with the winner.

It asks a running control plane, or evaluates files (--filename).

Exit codes: 0 success; 1 the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl get gateways
  pilotctl get hosts -f mesh/
  pilotctl get hosts -o json | jq '.hosts[] | select(.unused)'`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"gateways", "hosts"},
	}
	address, form := remote(c), addOutput(c)
	mesh := addFiles(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var list entrance.List
		if all, offline, err := mesh.evaluate(cmd); err != nil {
			return err
		} else if offline {
			list = *all.Entrances(mesh.domain)
		} else if err := get(cmd.Context(), *address, "/debug/gatewayz", nil, &list); err != nil {
			return err
		}
		if strings.HasPrefix(args[0], "g") {
			return show(cmd.OutOrStdout(), *form, &list, list.WriteGateways)
		}
		return show(cmd.OutOrStdout(), *form, &list, list.WriteHosts)
	}
	return c
}

// files are the flags for an evaluation of files.
type files struct {
	names, meshConfigs []string
	domain             string
}

func addFiles(c *cobra.Command) *files {
	f := &files{}
	c.Flags().StringSliceVarP(&f.names, "filename", "f", nil, "file or directory to evaluate instead of asking a control plane; - is the standard input")
	c.Flags().StringSliceVar(&f.meshConfigs, "meshConfig", nil, "file with mesh settings (MeshConfig), for an evaluation of files")
	c.Flags().StringVar(&f.domain, "domain", "cluster.local", "suffix of the names of services, for an evaluation of files")
	return f
}

// evaluate evaluates the files; offline is false if there are none.
func (f *files) evaluate(cmd *cobra.Command) (all *analyze.Analysis, offline bool, err error) {
	if len(f.names)+len(f.meshConfigs) == 0 {
		return nil, false, nil
	}
	all, err = evaluated(cmd, f.names, f.meshConfigs)
	if err != nil {
		return nil, false, run.Usage(err)
	}
	return all, true, nil
}
