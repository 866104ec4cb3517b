package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/run"
)

// remote adds the flag for the address of the control plane.
func remote(c *cobra.Command) *string { return console.Address(c) }

// get reads a page of the control plane into v.
func get(ctx context.Context, address, page string, query url.Values, v any) error {
	return console.Get(ctx, address, page, query, v)
}

func proxyStatus() *cobra.Command {
	c := &cobra.Command{
		Use:     "proxy-status [PROXY]",
		Aliases: []string{"ps"},
		Short:   "Show whether each proxy is up to date",
		Long: `proxy-status shows for each connected proxy and resource type whether the proxy is up to date:

  SYNCED    the proxy has acknowledged the last response, or had everything when it connected
  STALE     the proxy has not answered the last response yet; the time and the resources are shown below the table. Envoy
            does not acknowledge clusters while one of them is warming
  WARMING   the proxy has acknowledged the last response, and does not use all of it yet: it waits for certificates, routes or
            endpoints; the resources are shown below the table. Agents of Pilot report that
  REJECTED  the proxy has rejected the last response, and its content is still wanted; the reason is shown below the table
  NOT SENT  the proxy has subscribed, something is owed to it, and there is no response yet
  IGNORED   the proxy has not subscribed

A sidecar with hosts on demand is up to date if it has all hosts that its workload has asked for. One that is refused further hosts is named below the table.

A proxy whose agent could not reach any control plane, and therefore had stale configuration, is named below the table for an
hour after it has connected.

Several proxies with one node id are named below the table, with the addresses from which they connect. One workload may have
been started twice, or two workloads have the same name and IP address.

A rejected resource is held back until its content changes; all other resources are still updated. Below the table are the
resources that are held back, since when, the reason that the proxy gave, and the objects from which they were generated.

PROXY is the name of a proxy (reviews-1.shop), a prefix of the name, the node id, or a part of the node id, if only one
proxy matches.

Exit codes: 0 whatever the state of the proxies is; 1 the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl proxy-status
  pilotctl proxy-status reviews-1.shop -o json
  pilotctl proxy-status --address http://127.0.0.1:15014`,
		Args: cobra.MaximumNArgs(1),
	}
	address, form := remote(c), addOutput(c)
	namespace := c.Flags().StringP("namespace", "n", "", "only proxies of this namespace")
	c.ValidArgsFunction = console.Proxies(address)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		query := url.Values{"namespace": {*namespace}, "proxy": args}
		list := []admin.Sync{}
		if err := get(cmd.Context(), *address, "/debug/syncz", query, &list); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if *form != text {
			return write(w, *form, list)
		}
		return table(w, list)
	}
	return c
}

// columns returns the resource types in the order of the table's columns.
func columns() []string { return []string{"CDS", "LDS", "EDS", "RDS"} }

// table writes the status of proxies as a table.
func table(w io.Writer, list []admin.Sync) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no proxy is connected")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "PROXY\t"+strings.Join(columns(), "\t")+"\tPROTOCOL\tVERSION")
	var refused []string
	p := painter(w)
	for _, one := range list {
		row := []string{one.Proxy}
		for _, column := range columns() {
			now := one.Types[column]
			cell := string(now.State)
			if now.HeldBack > 0 {
				cell += fmt.Sprintf(", %d held back", now.HeldBack)
			}
			if now.State == admin.Stale && now.LagSeconds >= 1 {
				cell += fmt.Sprintf(" %.0fs", now.LagSeconds)
				refused = append(refused, fmt.Sprintf("%s %s %s", one.Proxy, column, p.unacked(now)))
			}
			if len(now.Warming) > 0 || now.WarmingMore {
				refused = append(refused, fmt.Sprintf("%s %s %s", one.Proxy, column, p.warming(now)))
			}
			row = append(row, cell)
			if now.LastError != "" {
				refused = append(refused, fmt.Sprintf("%s %s %s: %s", one.Proxy, column, p.in(red, "rejected"), now.LastError))
			}
			for _, h := range now.Held {
				refused = append(refused, fmt.Sprintf("%s %s %s", one.Proxy, column, p.held(h)))
			}
		}
		if hosts := one.Types["VHDS"]; hosts.Refused > 0 {
			refused = append(refused, fmt.Sprintf("%s %s: it has asked for %d hosts, and %d requests for others got 404 (pilotctl explain hosts-on-demand-full)", one.Proxy, p.in(yellow, "is refused further hosts on demand"), hosts.Names, hosts.Refused))
		}
		if one.SharedBy > 1 {
			refused = append(refused, fmt.Sprintf("%s from %s %s: %d proxies have this node id (pilotctl explain proxy-id-shared)", one.Proxy, one.Address, p.in(yellow, "shares its node id"), one.SharedBy))
		}
		if !one.StaleSince.IsZero() && time.Since(one.StaleUntil) < staleShown {
			refused = append(refused, p.stale(one))
		}
		fmt.Fprintln(t, strings.Join(append(row, one.Protocol, one.Version), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range refused {
		fmt.Fprintln(w, line)
	}
	return nil
}

// unacked returns a line about resources that a proxy has not acknowledged.
func (p paint) unacked(now admin.TypeSync) string {
	names := make([]string, 0, len(now.Unacked)+1)
	for _, u := range now.Unacked {
		names = append(names, u.Name)
	}
	if now.UnackedMore > 0 {
		names = append(names, fmt.Sprintf("%d more", now.UnackedMore))
	}
	if len(names) == 0 {
		names = append(names, "removed resources")
	}
	return fmt.Sprintf("%s for %.0fs: %s", p.in(yellow, "does not acknowledge"), now.LagSeconds, strings.Join(names, ", "))
}

// staleShown is how long after its end proxy-status mentions that a proxy had no control plane.
const staleShown = time.Hour

// stale returns a line about a proxy that had no control plane.
func (p paint) stale(one admin.Sync) string {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return fmt.Sprintf("%s %s from %s until %s: its agent could not reach a control plane", one.Proxy, p.in(yellow, "was stale"), at(one.StaleSince), at(one.StaleUntil))
}

// warming returns a line about resources that a proxy does not use yet.
func (p paint) warming(now admin.TypeSync) string {
	return fmt.Sprintf("%s: %s", p.in(yellow, "does not use yet"), now.Unused())
}

// held returns a line about a resource that is held back.
func (p paint) held(h admin.HeldBack) string {
	what := h.Name
	if h.VirtualHost != "" {
		what += ", virtual host " + h.VirtualHost
	}
	var of []string
	for _, o := range h.Objects {
		of = append(of, o.Key().String())
	}
	if len(of) > 0 {
		what += ", made of " + strings.Join(of, ", ")
	}
	return fmt.Sprintf("%s since %s: %s: %s", p.in(yellow, "holds back"), h.Since.UTC().Format(time.RFC3339), what, h.Reason)
}

func problems() *cobra.Command {
	c := &cobra.Command{
		Use:   "problems",
		Short: "Show the problems of the configuration that a control plane serves",
		Long: `problems shows all problems of the configuration of a running control plane: everything refused, ignored or not supported,
with file, line and column of the field, and the revision in which the problem appeared. The text is the same as analyze prints, and the code in
brackets stays the same in later releases; pilotctl explain CODE says more about it.

In addition to the problems that analyze finds, it shows resources that proxies have rejected or not acknowledged.

Exit codes: 0 whatever the problems are; 1 the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl problems
  pilotctl problems --level error -n shop
  pilotctl problems -o json | jq -r '.[].file' | sort | uniq -c`,
		Args: cobra.NoArgs,
	}
	address, form := remote(c), addOutput(c)
	namespace := c.Flags().StringP("namespace", "n", "", "only objects of this namespace")
	kind := c.Flags().String("kind", "", "only objects of this kind")
	level := c.Flags().String("level", "", "only this level: error, warning or info")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains([]string{"", "error", "warning", "info"}, *level) {
			return run.Usage(fmt.Errorf("--level: %q is not a level; write error, warning or info", *level))
		}
		query := url.Values{"namespace": {*namespace}, "kind": {*kind}, "level": {*level}}
		list := []admin.Problem{}
		if err := get(cmd.Context(), *address, "/debug/problemz", query, &list); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if *form != text {
			return write(w, *form, list)
		}
		p := painter(w)
		for _, one := range list {
			fmt.Fprintf(w, "%s (since revision %d)\n", p.line(one), one.Revision)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, p.in(green, "no problems"))
			return nil
		}
		errors, warnings := tally(list)
		_, err := fmt.Fprintf(w, "%s, %s\n", count(errors, "error"), count(warnings, "warning"))
		return err
	}
	return c
}
