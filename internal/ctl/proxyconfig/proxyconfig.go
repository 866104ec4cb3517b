// Package proxyconfig is the command pilotctl proxy-config: it shows the configuration of a proxy as the control plane wants it, as Envoy has it, and the
// differences, and sets the levels of Envoy's log.
//
// It owns the flags of the command, and how an Envoy is reached. Package configdump reads and compares. Goroutines: a forwarded port has one.
package proxyconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/explain/configdump"
	"github.com/pilotmesh/pilot/internal/run"
)

const proxyConfigHelp = `proxy-config shows clusters, listeners, routes and endpoints of a proxy: as the control plane wants them, as Envoy has them (--envoy), or the
differences, field by field (--diff). The certificates, the bootstrap and the levels of the log come from Envoy.

Envoy is reached through its admin interface: at the address --admin on the host of the proxy, or in its pod through the API server, as with kubectl
port-forward. --file reads a dump that was written before, by curl http://127.0.0.1:15000/config_dump?include_eds or by pilotctl bug-report.

PROXY is the name of a proxy (reviews-1.shop), a prefix of the name, the node id, or a part of the node id, if only one proxy matches. Private keys,
passwords and tokens are never shown.

Exit codes: 0 success, with --diff: no differences; 1 there are differences, or a program does not respond; 2 the command line is invalid.`

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use: "proxy-config", Aliases: []string{"pc"}, Long: proxyConfigHelp,
		Short: "Show what a proxy is to have, what it has, and the differences",
		Example: `  pilotctl proxy-config all web-1.shop --diff
  pilotctl pc clusters web-1.shop --fqdn reviews.shop.svc.cluster.local
  pilotctl pc secrets web-1.shop`,
	}
	all := configdump.Kinds()
	c.AddCommand(
		resourcesCommand("all", nil, all, "clusters, listeners, routes and endpoints"), resourcesCommand("clusters", []string{"cluster", "c"}, all[:1], "clusters"),
		resourcesCommand("listeners", []string{"listener", "l"}, all[1:2], "listeners"), resourcesCommand("routes", []string{"route", "r"}, all[2:3], "routes"),
		resourcesCommand("endpoints", []string{"endpoint", "ep"}, all[3:], "endpoints"),
		secretsCommand(), bootstrapCommand(), envoyLogCommand())
	return c
}

// dumps are the places where the configuration of a proxy is read.
type dumps struct {
	address, form *string
	envoyFlags
	file string
}

func addDumps(c *cobra.Command) *dumps {
	d := &dumps{address: console.Address(c), form: console.Output(c)}
	d.register(c.Flags())
	c.Flags().StringVar(&d.file, "file", "", "read a config dump of Envoy from this file; - is the standard input")
	c.ValidArgsFunction = console.Proxies(d.address)
	c.Args = cobra.MaximumNArgs(1)
	return d
}

// proxy returns the argument. Only a dump or an admin interface need none.
func (d *dumps) proxy(args []string, needed bool) (string, error) {
	switch {
	case d.file != "" && d.admin != "":
		return "", run.Usage(errors.New("--file and --admin: both are what Envoy has; leave one of them out"))
	case len(args) > 0:
		return args[0], nil
	case needed || d.file == "" && d.admin == "":
		return "", run.Usage(errors.New("say which proxy: PROXY, as pilotctl proxy-status lists them"))
	}
	return "", nil
}

// wanted returns what the control plane wants.
func (d *dumps) wanted(ctx context.Context, proxy string) (*configdump.Dump, error) {
	var page json.RawMessage
	if err := console.Get(ctx, *d.address, "/debug/config_dump", url.Values{"proxyID": {proxy}, "types": {"cds,lds,rds,eds"}}, &page); err != nil {
		return nil, err
	}
	dump, err := configdump.Read(page)
	if err != nil {
		return nil, fmt.Errorf("the page of the control plane: %w", err)
	}
	return dump, nil
}

// has returns what Envoy has.
func (d *dumps) has(cmd *cobra.Command, proxy string) (*configdump.Dump, error) {
	where, page, err := "the response of Envoy", []byte(nil), error(nil)
	switch d.file {
	case "":
		e, failed := d.open(cmd.Context(), *d.address, proxy)
		if failed != nil {
			return nil, failed
		}
		defer e.end()
		page, err = e.ask(cmd.Context(), http.MethodGet, "/config_dump", url.Values{"include_eds": {""}})
	case "-":
		where = "the standard input"
		page, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxDump))
	default:
		where = d.file
		page, err = os.ReadFile(d.file)
	}
	if err != nil {
		return nil, err
	}
	dump, err := configdump.Read(page)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return dump, nil
}

// resourcesCommand is the command for some kinds of resources.
func resourcesCommand(name string, aliases []string, kinds []configdump.Kind, what string) *cobra.Command {
	c := &cobra.Command{
		Use: name + " [PROXY]", Aliases: aliases, Short: "Show " + what,
		Long: "Shows " + what + " of a proxy, as the control plane wants them; with --envoy, --admin or --file, as Envoy has them; with --diff, the differences.",
		Example: fmt.Sprintf("  pilotctl proxy-config %s web-1.shop\n  pilotctl proxy-config %s web-1.shop --diff\n  pilotctl proxy-config %s --file config_dump.json -o json",
			name, name, name),
	}
	d, f := addDumps(c), configdump.Filter{}
	addFilter(c, &f, kinds)
	fromEnvoy := c.Flags().Bool("envoy", false, "show what Envoy has; --admin and --file mean it too")
	diff := c.Flags().Bool("diff", false, "show the differences between what the control plane wants and what Envoy has")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		proxy, err := d.proxy(args, *diff)
		if err != nil {
			return err
		}
		if *diff {
			return d.diff(cmd, proxy, kinds, f)
		}
		dump := (*configdump.Dump)(nil)
		if *fromEnvoy || d.admin != "" || d.file != "" {
			dump, err = d.has(cmd, proxy)
		} else {
			dump, err = d.wanted(cmd.Context(), proxy)
		}
		if err != nil {
			return err
		}
		return writeResources(cmd.OutOrStdout(), *d.form, dump, kinds, f)
	}
	return c
}

// addFilter adds the flags that select resources of some kinds.
func addFilter(c *cobra.Command, f *configdump.Filter, kinds []configdump.Kind) {
	set := c.Flags()
	if len(kinds) > 1 {
		return
	}
	cluster := func() {
		set.StringVar(&f.Host, "fqdn", "", "only clusters of this host; reviews.shop is enough for reviews.shop.svc.cluster.local")
		set.StringVar(&f.Subset, "subset", "", "only clusters of this subset")
		set.StringVar(&f.Direction, "direction", "", "only clusters of this direction: inbound or outbound")
	}
	switch kinds[0] {
	case configdump.Clusters:
		cluster()
		set.StringVar(&f.Port, "port", "", "only clusters of this port")
		set.StringVar(&f.Name, "name", "", "only the cluster of this name")
	case configdump.Listeners:
		set.StringVar(&f.Address, "ip", "", "only listeners with this IP address")
		set.StringVar(&f.Port, "port", "", "only listeners on this port")
		set.StringVar(&f.Name, "name", "", "only the listener of this name")
	case configdump.Routes:
		set.StringVar(&f.Name, "name", "", "only the route configuration of this name")
	case configdump.Endpoints:
		cluster()
		set.StringVar(&f.Address, "ip", "", "only endpoints with this IP address")
		set.StringVar(&f.Port, "port", "", "only endpoints on this port")
		set.StringVar(&f.Status, "status", "", "only endpoints of this health: healthy, unhealthy, degraded or draining")
		set.StringVar(&f.Name, "cluster", "", "only endpoints of the cluster of this name")
	}
}

// diff writes the differences.
func (d *dumps) diff(cmd *cobra.Command, proxy string, kinds []configdump.Kind, f configdump.Filter) error {
	wanted, err := d.wanted(cmd.Context(), proxy)
	if err != nil {
		return err
	}
	has, err := d.has(cmd, proxy)
	if err != nil {
		return err
	}
	wanted, has = configdump.Comparable(wanted, has)
	list := []configdump.Difference{}
	for _, k := range kinds {
		list = append(list, configdump.Diff(k, wanted.Only(k, f), has.Only(k, f))...)
	}
	err = console.Show(cmd.OutOrStdout(), *d.form, list, func(w io.Writer) error { return configdump.WriteDiff(w, list) })
	if err == nil && len(list) > 0 {
		return run.ErrFailed
	}
	return err
}

// ofEnvoy returns what the Envoy has of the proxy that the arguments name.
func (d *dumps) ofEnvoy(cmd *cobra.Command, args []string) (*configdump.Dump, error) {
	proxy, err := d.proxy(args, false)
	if err != nil {
		return nil, err
	}
	return d.has(cmd, proxy)
}

// writeResources writes a table per kind; as JSON the resources themselves.
func writeResources(w io.Writer, form string, dump *configdump.Dump, kinds []configdump.Kind, f configdump.Filter) error {
	if form == console.Text {
		for i, k := range kinds {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := configdump.WriteTable(w, k, dump.Only(k, f), f); err != nil {
				return err
			}
		}
		return nil
	}
	all := map[configdump.Kind][]map[string]any{}
	for _, k := range kinds {
		all[k] = []map[string]any{}
		for _, e := range dump.Only(k, f) {
			all[k] = append(all[k], e.Body)
		}
	}
	if len(kinds) == 1 {
		return console.Write(w, form, all[kinds[0]])
	}
	return console.Write(w, form, all)
}

func secretsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "secrets [PROXY]", Aliases: []string{"secret", "s"}, Short: "Show the certificates of a proxy, and secrets that it waits for",
		Long: `secrets shows the certificates and roots that Envoy has, and the secrets that it waits for (WARMING). It shows no keys, with -o json neither.`,
		Example: `  pilotctl proxy-config secrets web-1.shop
  pilotctl proxy-config secrets --admin http://127.0.0.1:15000 -o json`,
	}
	d := addDumps(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		dump, err := d.ofEnvoy(cmd, args)
		if err != nil {
			return err
		}
		list := append([]configdump.Secret{}, dump.Secrets...)
		return console.Show(cmd.OutOrStdout(), *d.form, list, func(w io.Writer) error { return configdump.WriteSecrets(w, list, time.Now()) })
	}
	return c
}

func bootstrapCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "bootstrap [PROXY]", Aliases: []string{"b"}, Short: "Show the configuration that Envoy was started with",
		Long: `bootstrap shows the configuration that Envoy was started with, as JSON or YAML, without keys and passwords.`,
		Example: `  pilotctl proxy-config bootstrap web-1.shop
  pilotctl proxy-config bootstrap web-1.shop -o json | jq .node.metadata`,
	}
	d := addDumps(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		dump, err := d.ofEnvoy(cmd, args)
		if err != nil {
			return err
		}
		if dump.Bootstrap == nil {
			return errors.New("the dump has no bootstrap: it was written by a control plane, or for some resources only; read one from Envoy (--admin)")
		}
		form := *d.form
		if form == console.Text {
			form = console.JSON
		}
		return console.Write(cmd.OutOrStdout(), form, dump.Bootstrap)
	}
	return c
}

func envoyLogCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "log [PROXY]", Aliases: []string{"o"}, Short: "Show or set the levels of Envoy's log",
		Long: `log shows from which level on each logger of Envoy logs, or sets levels first. A level counts until Envoy ends.

Levels: trace, debug, info, warning, error, critical and off.`,
		Example: `  pilotctl proxy-config log web-1.shop
  pilotctl proxy-config log web-1.shop --level debug
  pilotctl proxy-config log web-1.shop --level http:debug,rbac:trace
  pilotctl proxy-config log web-1.shop --reset`,
	}
	d := addDumps(c)
	level := c.Flags().String("level", "", "level for all loggers, or LOGGER:LEVEL for some, separated by commas")
	reset := c.Flags().BoolP("reset", "r", false, "set all loggers to warning, with which the agent starts Envoy")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		proxy, err := d.proxy(args, false)
		switch {
		case err != nil:
			return err
		case d.file != "":
			return run.Usage(errors.New("--file: a dump has no levels; name the admin interface of an Envoy with --admin"))
		case *reset && *level != "":
			return run.Usage(errors.New("--reset and --level: leave one of them out"))
		case *reset:
			*level = "warning"
		}
		query, err := logQuery(*level)
		if err != nil {
			return err
		}
		e, err := d.open(cmd.Context(), *d.address, proxy)
		if err != nil {
			return err
		}
		defer e.end()
		page, err := e.ask(cmd.Context(), http.MethodPost, "/logging", query)
		if err != nil {
			return err
		}
		list := loggers(string(page))
		return console.Show(cmd.OutOrStdout(), *d.form, list, func(w io.Writer) error {
			t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
			fmt.Fprintln(t, "LOGGER\tLEVEL")
			for _, one := range list {
				fmt.Fprintf(t, "%s\t%s\n", one.Logger, one.Level)
			}
			return t.Flush()
		})
	}
	return c
}

// logger is a logger of Envoy with its level.
type logger struct {
	Logger string `json:"logger"`
	Level  string `json:"level"`
}

// logQuery returns the parameters of Envoy's page /logging for a value of --level.
func logQuery(level string) (url.Values, error) {
	if level == "" {
		return nil, nil
	}
	for _, one := range strings.Split(level, ",") {
		name := one[strings.LastIndexByte(one, ':')+1:]
		if !strings.Contains(" trace debug info warning error critical off ", " "+name+" ") || name == "" {
			return nil, run.Usage(fmt.Errorf("--level: %q is not a level of Envoy; write trace, debug, info, warning, error, critical or off", name))
		}
	}
	if strings.Contains(level, ":") {
		return url.Values{"paths": {level}}, nil
	}
	return url.Values{"level": {level}}, nil
}

// loggers reads Envoy's page /logging.
func loggers(page string) []logger {
	list := []logger{}
	for _, line := range strings.Split(page, "\n") {
		if name, level, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			list = append(list, logger{name, level})
		}
	}
	return list
}
