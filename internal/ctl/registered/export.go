package registered

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source/consul"
	"github.com/pilotmesh/pilot/internal/source/eureka"
	"github.com/pilotmesh/pilot/internal/source/nacos"
	"github.com/pilotmesh/pilot/internal/source/registries"
	"github.com/pilotmesh/pilot/internal/source/zookeeper"
)

// allTypes selects registries of all types.
const allTypes = "all"

// exportHelp is the long help of the command.
const exportHelp = `export writes the services of registries outside Kubernetes as ServiceEntries, so that a mesh can leave a registry. Proxies use the written
objects like the services of the registry: the same hosts, ports and endpoints, with their labels, weights and localities.

It writes the services that a running control plane serves, also while their registry cannot be read. With --registriesConfig, export reads the
registries of that file itself, each of them once, and needs no control plane.

What ServiceEntries cannot express is a comment above the object: instances that must not get traffic are left out, interfaces of Dubbo become TCP
ports, and shares of a migration are not written. Instances that the control plane does not use are comments at the head. A service whose instances
serve different ports is several ServiceEntries. Registries with one host are one service, and the first one decides its ports.

As long as the control plane reads the registry too, the written objects define the services, and instances that both have count once. So apply the
output first, and remove the registry from the registries file after that.

Exit codes: 0 all services were written; 1 a registry cannot be read completely, or the control plane does not respond; 2 the command line is
invalid. Nothing is written unless all services are.`

// ExportCommand returns export.
func ExportCommand() *cobra.Command {
	types := []string{registries.Consul, registries.ZooKeeper, registries.Nacos, registries.Eureka, registries.Memory, allTypes}
	c := &cobra.Command{
		Use:       "export " + strings.Join(types, "|"),
		Short:     "Write the services of registries as ServiceEntries",
		Long:      exportHelp,
		ValidArgs: types,
		Example: `  pilotctl export consul > consul.yaml
  pilotctl export all --registriesConfig registries.yaml | pilotctl analyze -
  pilotctl export zookeeper --registry dubbo | kubectl apply -f -`,
		Args: cobra.ExactArgs(1),
	}
	address := console.Address(c)
	file := c.Flags().String("registriesConfig", "", "registries file to read the registries of, in the place of the control plane")
	named := c.Flags().StringSlice("registry", nil, "only registries with these names")
	timeout := c.Flags().Duration("timeout", 30*time.Second, "how long the registries of --registriesConfig may take to answer")
	domain := c.Flags().String("domain", "cluster.local", "suffix of the names of services in the cluster; with --registriesConfig")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		typ := args[0]
		if !slices.Contains(types, typ) {
			return run.Usage(fmt.Errorf("%q is no type of registries; write %s. Objects of MCP servers are configuration already", typ, strings.Join(types, ", ")))
		}
		wanted := func(name, of string) bool {
			return of != registries.MCP && (typ == allTypes || typ == of) && (len(*named) == 0 || slices.Contains(*named, name))
		}
		var e *exported
		var err error
		if *file == "" {
			e, err = exportServed(cmd.Context(), *address, wanted)
		} else {
			e, err = exportFile(cmd.Context(), *file, *domain, *timeout, wanted)
		}
		if err != nil {
			return err
		}
		return e.write(cmd.OutOrStdout())
	}
	return c
}

// exported is the output: remarks for its head, and the objects.
type exported struct {
	remarks []string
	entries []admin.Exported
}

// exportServed returns what a control plane serves.
func exportServed(ctx context.Context, address string, wanted func(name, of string) bool) (*exported, error) {
	all := []registry.Status{}
	if err := console.Get(ctx, address, "/debug/registries", nil, &all); err != nil {
		return nil, err
	}
	e, query := &exported{}, url.Values{}
	var there []string
	var errs []error
	for _, one := range all {
		there = append(there, fmt.Sprintf("%s (%s)", one.Name, one.Type))
		if !wanted(one.Name, one.Type) {
			continue
		}
		if one.LastSync == nil {
			errs = append(errs, fmt.Errorf("the control plane has never read the registry %s: its state is %s %s; pilotctl registries %s shows why", one.Name, one.State, one.LastError, one.Name))
		} else if one.State != registry.Synced {
			e.remarks = append(e.remarks, fmt.Sprintf("registry %s: %s; it was last read at %s", one.Name, one.State, one.LastSync.Format(time.RFC3339)))
		}
		query.Add("registry", one.Name)
		e.remarks = append(e.remarks, one.Problems...)
	}
	if len(query) == 0 {
		return nil, fmt.Errorf("the control plane has no such registry; it has %s", strings.Join(append(there, "no others"), ", "))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return e, console.Get(ctx, address, "/debug/exportz", query, &e.entries)
}

// exportFile returns what the registries of a file have.
func exportFile(ctx context.Context, file, domain string, timeout time.Duration, wanted func(name, of string) bool) (*exported, error) {
	now, err := readFile(ctx, file, domain, timeout, wanted)
	if err != nil {
		return nil, err
	}
	e := &exported{}
	for _, p := range now.Problems {
		e.remarks = append(e.remarks, p.String())
	}
	e.entries, err = admin.Export(now.Services, func(host string) bool { return now.Migrations[host] })
	return e, err
}

// readFile reads the registries of a file.
func readFile(ctx context.Context, file, domain string, timeout time.Duration, wanted func(name, of string) bool) (*registries.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return registries.ReadOnce(ctx, registries.Options{
		Path: file, Domain: domain, Log: slog.New(slog.DiscardHandler),
		Factories: map[string]registries.Factory{
			registries.Consul: consul.New, registries.ZooKeeper: zookeeper.New, registries.Nacos: nacos.New, registries.Eureka: eureka.New,
		},
	}, func(e registries.Entry) bool { return wanted(e.Name, e.Type) })
}

// write writes the objects as YAML documents.
func (e *exported) write(w io.Writer) error {
	var b strings.Builder
	for _, r := range e.remarks {
		fmt.Fprintf(&b, "# %s\n", oneLine(r))
	}
	for _, one := range e.entries {
		fmt.Fprintf(&b, "---\n# of %s\n", oneLine(strings.Join(one.Registries, ", ")))
		for _, lost := range one.Lost {
			fmt.Fprintf(&b, "# without: %s\n", oneLine(lost))
		}
		err := console.Write(&b, console.YAML, map[string]any{
			"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": map[string]string{"namespace": one.Namespace, "name": one.Name}, "spec": one.Spec,
		})
		if err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// oneLine returns a text that is safe in a comment: what a registry says must not become a document.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}
