// Package traffic has the commands of pilotctl about the metrics of proxies: top and graph. Package flow computes the figures.
//
// The package starts no goroutines.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/explain/flow"
	"github.com/pilotmesh/pilot/internal/run"
)

// Where the metrics come from, for the help of both commands.
const metricsFrom = `The figures are the difference of two readings of the metrics that Envoys report (istio_requests_total and others): the mesh must report
metrics (defaultProviders: {metrics: [prometheus]}, or a Telemetry). They are read from a Prometheus server (--prometheus), from the agents at the
addresses that are named, or from the agents of all proxies that are connected to the control plane (--address, --status-port). Agents must be
reachable from here, as they are on one machine and in a pod; from elsewhere, name a Prometheus server.`

// meter reads traffic.
type meter struct {
	address, prometheus *string
	port                *uint16
	interval            *time.Duration
	namespace           *string
}

func addMeter(c *cobra.Command) meter {
	return meter{
		address:    console.Address(c),
		prometheus: c.Flags().String("prometheus", "", "URL of a Prometheus server that collects the metrics of the mesh"),
		port:       c.Flags().Uint16("status-port", 15020, "port of the agents' metrics"),
		interval:   c.Flags().Duration("interval", 5*time.Second, "time between the two readings"),
		namespace:  c.Flags().StringP("namespace", "n", "", "only traffic from and to this namespace"),
	}
}

// check refuses flags that cannot be meant.
func (m meter) check(agents []string) error {
	switch {
	case *m.interval < 100*time.Millisecond:
		return run.Usage(fmt.Errorf("--interval: %v is too short; write 100ms or more", *m.interval))
	case *m.prometheus != "" && len(agents) > 0:
		return run.Usage(errors.New("--prometheus: the metrics come from a Prometheus server or from agents; leave out one of them"))
	}
	return nil
}

// reader returns a function that reads the metrics once.
func (m meter) reader(ctx context.Context, agents []string) (func() (*flow.Sample, []string, error), error) {
	client := &http.Client{Timeout: console.RequestTimeout}
	if *m.prometheus != "" {
		return func() (*flow.Sample, []string, error) {
			s, err := flow.Prometheus(ctx, client, *m.prometheus)
			return s, nil, err
		}, nil
	}
	if len(agents) == 0 {
		list := []admin.Sync{}
		if err := console.Get(ctx, *m.address, "/debug/syncz", url.Values{}, &list); err != nil {
			return nil, err
		}
		if agents = agentsOf(list, *m.port); len(agents) == 0 {
			return nil, errors.New("no proxy is connected to the control plane; name the addresses of agents, or a Prometheus server (--prometheus)")
		}
	}
	return func() (*flow.Sample, []string, error) { return flow.Pages(ctx, client, agents) }, nil
}

// agentsOf returns the addresses of the agents of proxies. The node id of a proxy has its address, and a proxy may have several streams.
func agentsOf(list []admin.Sync, port uint16) (agents []string) {
	for _, one := range list {
		parts := strings.Split(one.Connection, "~")
		if len(parts) < 2 {
			continue
		}
		if _, err := netip.ParseAddr(parts[1]); err != nil {
			continue
		}
		if at := net.JoinHostPort(parts[1], strconv.Itoa(int(port))); !slices.Contains(agents, at) {
			agents = append(agents, at)
		}
	}
	return agents
}

// follow reads the metrics at each interval, and shows the traffic in between: once, or until the context ends.
func (m meter) follow(ctx context.Context, agents []string, once bool, show func(flow.Answer) error) error {
	read, err := m.reader(ctx, agents)
	if err != nil {
		return err
	}
	before, _, err := read()
	if err != nil {
		return err
	}
	tick := time.NewTicker(*m.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		after, missing, err := read()
		if err != nil {
			return err
		}
		a := flow.Between(before, after).Only(*m.namespace)
		a.Missing = missing
		if err := show(a); err != nil || once {
			return err
		}
		before = after
	}
}

// remarks writes why a table is empty, which Envoys did not record all, and which agents did not answer.
func remarks(w io.Writer, a flow.Answer) {
	if len(a.Edges) == 0 {
		fmt.Fprintf(w, "No traffic in %.1f s. If there should be some: does the mesh report metrics (defaultProviders: {metrics: [prometheus]})?\n", a.Seconds)
	}
	for i, one := range a.Dropped {
		if i == 5 {
			fmt.Fprintf(w, "%d more Envoys did not record all\n", len(a.Dropped)-i)
			break
		}
		fmt.Fprintf(w, "dropped: the Envoy of %s did not record %.0f values, because it has as many series of metrics as it keeps: the figures are too low\n", one.Agent, one.Values)
	}
	for i, one := range a.Missing {
		if i == 5 {
			fmt.Fprintf(w, "%d more agents did not answer\n", len(a.Missing)-i)
			break
		}
		fmt.Fprintf(w, "missing: %s\n", one)
	}
}

// TopCommand returns top.
func TopCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "top [AGENT...]",
		Short: "Show requests, errors and latencies per workload, live",
		Long: `top shows for each workload that serves requests how many per second, which share of them failed (no response, a status of 500 or more, an error
of gRPC), and latencies as its clients saw them; with --edges for each pair of client and server. On a terminal the table is renewed at each interval
until Ctrl-C; elsewhere, and with --once, there is one.

` + metricsFrom + `

Exit codes: 0 success; 1 the metrics cannot be read; 2 the command line is invalid.`,
		Example: `  pilotctl top
  pilotctl top --edges -n bookstore --once
  pilotctl top 127.0.0.1:15020 127.0.0.1:16020
  pilotctl top --prometheus http://prometheus.monitoring:9090 -o json`,
	}
	m, form := addMeter(c), console.Output(c)
	edges := c.Flags().Bool("edges", false, "one line per pair of client and server")
	once := c.Flags().Bool("once", false, "show one interval and end")
	c.RunE = func(cmd *cobra.Command, agents []string) error {
		if err := m.check(agents); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		live := *form == console.Text && !*once && console.IsTerminal(w)
		return m.follow(cmd.Context(), agents, !live, func(a flow.Answer) error {
			if *form != console.Text {
				return console.Write(w, *form, a)
			}
			if live {
				fmt.Fprint(w, "\x1b[H\x1b[2J") // the cursor to the upper left corner, and an empty screen
			}
			defer remarks(w, a)
			if *edges {
				return a.EdgeTable(w)
			}
			return a.Top(w)
		})
	}
	return c
}

// GraphCommand returns graph.
func GraphCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "graph [AGENT...]",
		Short: "Show which workloads call each other: as text, for Graphviz, or as a picture",
		Long: `graph shows for each workload the ones that it called within an interval, with requests per second, errors and the latency that 95 % of the
requests did not exceed.

` + metricsFrom + `

Exit codes: 0 success; 1 the metrics cannot be read; 2 the command line is invalid.`,
		Example: `  pilotctl graph
  pilotctl graph -o svg > mesh.svg
  pilotctl graph -o dot | dot -Tpng > mesh.png
  pilotctl graph --prometheus http://prometheus.monitoring:9090 --interval 30s -n bookstore`,
	}
	m := addMeter(c)
	form := c.Flags().StringP("output", "o", console.Text, "output format: text, dot, svg, json or yaml")
	c.RunE = func(cmd *cobra.Command, agents []string) error {
		w := cmd.OutOrStdout()
		forms := map[string]func(flow.Answer) error{
			console.Text: func(a flow.Answer) error { return a.Graph(w) },
			"dot":        func(a flow.Answer) error { return a.Dot(w) },
			"svg":        func(a flow.Answer) error { return a.SVG(w) },
			console.JSON: func(a flow.Answer) error { return console.Write(w, console.JSON, a) }, console.YAML: func(a flow.Answer) error { return console.Write(w, console.YAML, a) },
		}
		if forms[*form] == nil {
			return run.Usage(fmt.Errorf("--output: %q is not an output format; write text, dot, svg, json or yaml", *form))
		}
		if err := m.check(agents); err != nil {
			return err
		}
		return m.follow(cmd.Context(), agents, true, func(a flow.Answer) error {
			if *form == console.Text || *form == "dot" || *form == "svg" {
				defer remarks(cmd.ErrOrStderr(), a)
			}
			return forms[*form](a)
		})
	}
	return c
}
