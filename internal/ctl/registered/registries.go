// Package registered has the commands of pilotctl about registries of services outside Kubernetes: registries shows their state, and export writes
// their services as objects.
//
// The package starts no goroutines.
package registered

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/run"
)

// Command returns registries.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "registries [NAME]",
		Short: "Show the registries of services outside Kubernetes",
		Long: `registries shows for each registry (Consul, ZooKeeper, Nacos, Eureka, MCP servers and the registries file itself) its state, how many services and
instances of it are in force, how many of these the registry does not list any more and the protection holds, and what of it is not used, with the reason.

The states are: connecting, it has never been listed; synced, its services are in force; stale, it cannot be read now and its last services
stay; held, it lost many instances and they stay for a while; failed, it refuses the control plane.

Exit codes: 0 all registries are synced; 1 one is not, or the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl registries
  pilotctl registries west
  pilotctl registries -o json | jq -r '.[] | select(.state != "synced") | .name'`,
		Args: cobra.MaximumNArgs(1),
	}
	address, form := console.Address(c), console.Output(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		all := []registry.Status{}
		if err := console.Get(cmd.Context(), *address, "/debug/registries", nil, &all); err != nil {
			return err
		}
		if len(args) > 0 {
			named := []registry.Status{}
			for _, one := range all {
				if one.Name == args[0] {
					named = append(named, one)
				}
			}
			if all = named; len(all) == 0 {
				return fmt.Errorf("the control plane has no registry %q; pilotctl registries lists them", args[0])
			}
		}
		show := func(w io.Writer) error { return writeRegistries(w, all) }
		if *form != console.Text {
			show = func(w io.Writer) error { return console.Write(w, *form, all) }
		}
		if err := show(cmd.OutOrStdout()); err != nil {
			return err
		}
		for _, one := range all {
			if one.State != registry.Synced {
				return run.ErrFailed
			}
		}
		return nil
	}
	return c
}

// writeRegistries writes a table, and below it the errors and problems.
func writeRegistries(w io.Writer, all []registry.Status) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no registries: start the control plane with --registriesConfig or --consulserverURL, or set configSources in the mesh configuration")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tTYPE\tSTATE\tSERVICES\tINSTANCES\tHELD\tPROBLEMS\tREAD")
	for _, one := range all {
		read := "never"
		if one.LastSync != nil {
			read = one.LastSync.Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%s\n", one.Name, one.Type, one.State, one.Services, one.Instances, strconv.Itoa(one.Held), len(one.Problems), read)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	for _, one := range all {
		for _, p := range one.Problems {
			if _, err := fmt.Fprintln(w, p); err != nil {
				return err
			}
		}
	}
	return nil
}
