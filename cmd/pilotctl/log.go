package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/run"
)

func logCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "log [LEVEL|PART:LEVEL]...",
		Short: "Show or set the levels of a control plane's log, or of an agent's",
		Long: `log shows from which level on each part of a running control plane logs, or sets levels first: one for all parts, or one for each
part that is named. A level that was set counts until the program ends; --log_output_level is what it starts with.

Levels: debug, info, warn, error and none. In the place of a part, the name of a scope of Istio is taken, too (ads, model).

With the address of an agent's status port (--statusPort) it does the same for that agent. Both answer this only to their own host.
The log levels of Envoy are something else: pilot-agent request POST 'logging?level=debug' sets these.

Exit codes: 0 success; 1 the program does not respond, or has no such part or level; 2 the command line is invalid.`,
		Example: `  pilotctl log
  pilotctl log proxies:debug
  pilotctl log info kube:debug
  kubectl port-forward pod/reviews-1 15020 & pilotctl log --address 127.0.0.1:15020 certificates:debug`,
	}
	address, form := remote(c), addOutput(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := levels(cmd.Context(), *address, args)
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if *form != text {
			return write(w, *form, list)
		}
		t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "PART\tLEVEL\tLOGS")
		for _, one := range list {
			fmt.Fprintf(t, "%s\t%s\t%s\n", one.Part, one.Level, one.Logs)
		}
		return t.Flush()
	}
	return c
}

// levels sets levels, if there are some, and returns the present ones.
func levels(ctx context.Context, address string, set []string) (list []logging.State, err error) {
	if len(set) == 0 {
		return list, get(ctx, address, "/debug/logging", nil, &list)
	}
	at, err := console.PageAt(address, "/debug/logging", url.Values{"level": {strings.Join(set, ",")}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, console.RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, at.String(), http.NoBody)
	if err != nil {
		return nil, run.Usage(fmt.Errorf("--address: %w", err))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("request to the control plane: %w; is it running, and is --address its --httpAddr?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("request to the control plane: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the levels are not set: %s", strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%s is not the response of a control plane: %w", at, err)
	}
	return list, nil
}
