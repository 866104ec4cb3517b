package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/explain/live"
	"github.com/pilotmesh/pilot/internal/run"
)

// askAgain is the pause between two requests while wait waits.
const askAgain = 200 * time.Millisecond

// exitNoEffect is the exit code of wait for an object that has no effect: no connected proxy needs it, or another object shadows it.
const exitNoEffect = 3

// errNotLive ends a wait that cannot succeed any more, or not in time. The last answer has the reason.
var errNotLive = errors.New("not live")

// waitHelp is the long help of the command.
const waitHelp = `wait returns when every connected proxy that needs an object has acknowledged the present version of the object, and uses it: an
Envoy acknowledges a listener before it has the certificates and routes for it, which is called warming, and its agent reports
that. Connections that were opened before an edit continue with the listeners of that time, and with their access policies, until Envoy has
drained them: wait names the proxies with such connections, and their number at most. --for=drained waits for their end, too, for which
drainDuration (45s) is the limit. A proxy needs an object if something that the proxy has is made with it. Proxies that do not need the object, and proxies
that are behind with something else only, are not waited for, and neither are sidecars with hosts on demand whose workloads have not asked for the
host that the object is about: they get it with the first request.

KIND is a kind of configuration that proxies are sent something for, such as VirtualService, Gateway, AuthorizationPolicy, EnvoyFilter or Service, in any case,
singular, plural or short (vs).

After kubectl apply, give wait the generation of the object, so that it does not answer for the version before.

Exit codes: 0 the object is live; 1 it is not: the time is over, the control plane refuses its latest version, or a proxy
rejects it; 2 the command line is invalid; 3 the control plane has it, and it has no effect or only a part of it: no connected proxy needs
it, or another object shadows it, that is, goes first where both say something.`

func waitCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "wait --for=live KIND/NAME",
		Short: "Wait until every proxy that needs an object uses it",
		Long:  waitHelp,
		Example: `  pilotctl wait --for=live virtualservice/reviews -n shop
  pilotctl wait --for=live vs/reviews -n shop --timeout 10s \
    --generation "$(kubectl get virtualservice reviews -n shop -o jsonpath='{.metadata.generation}')"
  pilotctl wait --for=live service/reviews -n shop -o json | jq .behind`,
		Args: cobra.ExactArgs(1),
	}
	address, form := remote(c), addOutput(c)
	namespace := c.Flags().StringP("namespace", "n", "default", "namespace of the object")
	what := c.Flags().String("for", "live", "what to wait for: live, or drained: live, and connections that were opened earlier have ended")
	generation := c.Flags().Int64("generation", 0, "wait for this generation of the object (metadata.generation) or a later one")
	timeout := c.Flags().Duration("timeout", time.Minute, "how long to wait")
	c.ValidArgsFunction = completeKindAndName(address, namespace)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		kind, name, ok := strings.Cut(args[0], "/")
		if !ok || name == "" {
			return run.Usage(fmt.Errorf("%q names no object: write KIND/NAME, such as virtualservice/reviews", args[0]))
		}
		if *what != "live" && *what != "drained" {
			return run.Usage(fmt.Errorf("--for: %q is nothing to wait for; write live or drained", *what))
		}
		query := url.Values{"kind": {kind}, "namespace": {*namespace}, "name": {name}}
		last, err := waitLive(cmd.Context(), *address, query, goal{*generation, *what == "drained"}, *timeout)
		if last == nil {
			return err
		}
		w := cmd.OutOrStdout()
		if *form != text {
			if failed := write(w, *form, last); failed != nil {
				return failed
			}
		} else if failed := writeLive(w, last, goal{*generation, *what == "drained"}, *timeout); failed != nil {
			return failed
		}
		switch {
		case errors.Is(err, errNotLive):
			return run.ErrFailed
		case err == nil && (last.Proxies+last.NotAsked == 0 || len(last.Conflicts) > 0):
			return run.Exit(exitNoEffect, run.ErrFailed)
		}
		return err
	}
	return c
}

// goal is the state that wait waits for.
type goal struct {
	// generation of the object, or a later one.
	generation int64
	// drained asks for the end of connections that were opened earlier, too.
	drained bool
}

// waitLive asks until the object is live. It returns the last answer, and errNotLive if the object is not live.
func waitLive(ctx context.Context, address string, query url.Values, g goal, timeout time.Duration) (last *admin.Live, err error) {
	over := time.NewTimer(timeout)
	defer over.Stop()
	for {
		now := &admin.Live{}
		if err := get(ctx, address, "/debug/live", query, now); err != nil {
			return nil, err
		}
		switch {
		case isLive(now, g):
			return now, nil
		case isLost(now):
			return now, errNotLive
		}
		select {
		case <-ctx.Done():
			return now, fmt.Errorf("waiting for %s: %w", now.Object.Key(), ctx.Err())
		case <-over.C:
			return now, errNotLive
		case <-time.After(askAgain):
		}
	}
}

func isLive(now *admin.Live, g goal) bool {
	return !now.Unknown && now.Generation >= g.generation && len(now.Refused) == 0 && now.Done() && (!g.drained || now.Drained())
}

// isLost reports whether waiting longer is of no use: only another version of the object can become live.
func isLost(now *admin.Live) bool {
	for _, b := range now.Behind {
		if b.Rejected == "" {
			return false
		}
	}
	return len(now.Refused) > 0 || len(now.Behind) > 0
}

// writeLive writes an answer as text.
func writeLive(w io.Writer, now *admin.Live, g goal, timeout time.Duration) error {
	p, object := painter(w), now.Object.Key()
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch {
	case len(now.Refused) > 0:
		say("%s: the control plane refuses its latest version:", p.in(red, object.String()))
		for _, one := range now.Refused {
			say("  %s", p.line(one))
		}
	case now.Unknown:
		say("%s: the control plane does not have it after %s; is the namespace right, and does the object exist?", p.in(red, object.String()), timeout)
	case now.Generation < g.generation:
		say("%s: the control plane still has generation %d after %s; does %d exist?", p.in(red, object.String()), now.Generation, timeout, g.generation)
	case now.Proxies == 0 && now.NotAsked > 0:
		say("%s is live (revision %d): no proxy has what it is about", p.in(green, object.String()), now.Revision)
	case now.Proxies == 0:
		say("%s: no connected proxy needs it (revision %d): no proxy sees what it is about, or what it refers to does not exist",
			p.in(red, object.String()), now.Revision)
	case now.Done():
		color := green
		if g.drained && !now.Drained() || len(now.Conflicts) > 0 {
			color = red
		}
		say("%s is live on %d of %d proxies that need it (revision %d)", p.in(color, object.String()), now.Live, now.Proxies, now.Revision)
		for _, d := range now.Draining {
			say("  %s", drainingLine(d))
		}
	default:
		say("%s is live on %d of %d proxies that need it (revision %d); not on", p.in(red, object.String()), now.Live, now.Proxies, now.Revision)
		for _, b := range now.Behind {
			say("  %s", behindLine(b))
		}
	}
	if len(now.Refused) == 0 && !now.Unknown && now.NotAsked > 0 {
		say("  %d sidecars get hosts on demand and have not asked for it yet: they get it with the first request", now.NotAsked)
	}
	if len(now.Refused) == 0 && !now.Unknown {
		for _, one := range now.Conflicts {
			say("  shadowed by another object: %s: %s", one.Field, one.Reason)
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func drainingLine(d live.Draining) string {
	return fmt.Sprintf("%s, where connections that were opened earlier continue with the listeners of that time, and their access policies: "+
		"at most %d, in %d filter chains that drain; --for=drained waits for their end, and drainDuration limits it", d.Proxy, d.Connections, d.FilterChains)
}

func behindLine(b live.Behind) string {
	switch {
	case b.Rejected != "":
		return b.Proxy + ", which rejects it: " + b.Rejected
	case len(b.Warming) > 0:
		return b.Proxy + ", which has it and does not use it yet, because it is warming " + strings.Join(b.Warming, ", ") +
			"; see whether its certificates, routes and endpoints can be fetched"
	case b.Acknowledged == 0:
		return b.Proxy + ", which has not acknowledged its first configuration; pilotctl proxy-status " + b.Proxy + " says more"
	}
	return b.Proxy + ", which has acknowledged revision " + strconv.FormatUint(uint64(b.Acknowledged), 10) + "; pilotctl proxy-status " + b.Proxy + " says more"
}
