package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/explain/patched"
	"github.com/pilotmesh/pilot/internal/run"
)

func explainPatch() *cobra.Command {
	c := &cobra.Command{
		Use:   "patch NAMESPACE/NAME",
		Short: "Explain what the patches of an EnvoyFilter do",
		Long: `patch shows what each patch of an EnvoyFilter does: how many places it matches in how many resources, why it is left out, and the changed
resources before and after as a diff. Before is with the patches of all other EnvoyFilters.

Proxies are shown by their kind: proxies of one kind receive the same resources. If the EnvoyFilter applies to no connected proxy, the kinds are
taken from the configuration: sidecars of workloads with the labels of the EnvoyFilter, and gateways. Conditions about the version and
the metadata of proxies hold for connected proxies only.

It asks a running control plane, or evaluates files (--filename).

Exit codes: 0 each patch matches something and none is left out; 1 some patch matches nothing or is left out, or the control plane does not
respond; 2 the command line is invalid.`,
		Example: `  pilotctl explain patch shop/limits
  pilotctl explain patch istio-system/lua -f mesh/
  pilotctl explain patch shop/limits -o json | jq '.patches[] | select(.resources == 0)'`,
		Args: cobra.ExactArgs(1),
	}
	address, form := remote(c), addOutput(c)
	mesh := addFiles(c)
	c.ValidArgsFunction = console.Objects(address, func(o admin.Object) string {
		if o.Kind != api.KindEnvoyFilter {
			return ""
		}
		return o.Namespace + "/" + o.Name
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		namespace, name, ok := strings.Cut(args[0], "/")
		if !ok {
			return run.Usage(fmt.Errorf("%q does not have the form NAMESPACE/NAME", args[0]))
		}
		var a patched.Answer
		if all, offline, err := mesh.evaluate(cmd); err != nil {
			return err
		} else if offline {
			found, err := all.Patches(mesh.domain, namespace, name)
			if err != nil {
				return err
			}
			a = *found
		} else if err := get(cmd.Context(), *address, "/debug/patchz", url.Values{"namespace": {namespace}, "name": {name}}, &a); err != nil {
			return err
		}
		if err := show(cmd.OutOrStdout(), *form, &a, a.Write); err != nil {
			return err
		}
		if !a.Complete() {
			return run.ErrFailed
		}
		return nil
	}
	return c
}
