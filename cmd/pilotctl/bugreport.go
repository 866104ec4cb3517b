package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin/bugreport"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/ctl/install/pods"
	"github.com/pilotmesh/pilot/internal/run"
)

const bugReportHelp = `bug-report writes one archive (.tar.gz) for a report of a fault: the versions of all programs, the problems, the debug pages and metrics of the
control plane, the objects of the mesh as it has them, the configuration of some proxies (proxies with a fault first), and, if a cluster is reachable,
the logs of the pods of the control plane and of these proxies.

Secrets are never read, and private keys, passwords and tokens in other content are replaced by [redacted]. CONTENT.txt in the archive lists the parts that were left out and
why. The archive has names of hosts, services and accounts, and addresses: read it before you send it to anybody.

Progress goes to the standard error.

Exit codes: 0 the archive is written, also if parts are missing; 1 it cannot be written; 2 the command line is invalid.`

// maxPage bounds a page of the control plane.
const maxPage = 64 << 20

// maxLogs bounds the number of logs.
const maxLogs = 60

// bugReport are the flags of bug-report.
type bugReport struct {
	console.Cluster
	address         *string
	output          string
	proxies, maxMiB int
	timeout, since  time.Duration
	noCluster       bool
}

func bugReportCommand() *cobra.Command {
	b := &bugReport{}
	c := &cobra.Command{
		Use: "bug-report", Short: "Write an archive for a report of a fault, without secrets", Long: bugReportHelp,
		Example: `  pilotctl bug-report
  pilotctl bug-report --file fault.tar.gz --proxies 3 --timeout 30s
  pilotctl bug-report --no-cluster --address http://127.0.0.1:15014`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	b.address = remote(c)
	b.Register(f)
	f.StringVar(&b.output, "file", "pilot-bug-report.tar.gz", "the archive")
	f.IntVar(&b.proxies, "proxies", 10, "how many proxies have their configuration and logs in the archive")
	f.IntVar(&b.maxMiB, "max-size", 100, "size of the content, in MiB before it is compressed")
	f.DurationVar(&b.timeout, "timeout", 2*time.Minute, "how long the command may take")
	f.DurationVar(&b.since, "since", time.Hour, "how old the lines of logs may be")
	f.BoolVar(&b.noCluster, "no-cluster", false, "read no logs from a cluster")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if b.proxies < 0 || b.maxMiB < 1 || b.timeout <= 0 || b.since <= 0 {
			return run.Usage(errors.New("--proxies, --max-size, --timeout and --since must be positive"))
		}
		return b.run(cmd)
	}
	return c
}

func (b *bugReport) run(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), b.timeout)
	defer cancel()
	out, err := renameio.NewPendingFile(b.output, renameio.WithPermissions(0o600))
	if err != nil {
		return fmt.Errorf("the archive (--file): %w", err)
	}
	defer func() { _ = out.Cleanup() }() // after CloseAtomicallyReplace it does nothing
	o := bugreport.Options{
		Proxies: b.proxies, MaxBytes: b.maxMiB << 20, Now: time.Now(), Get: b.page,
		Say: func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) },
	}
	o.Files = append(o.Files, bugreport.File{Name: "pilotctl.json", Read: func(context.Context) ([]byte, error) { return json.Marshal(run.ReadBuild()) }})
	if !b.noCluster {
		o.Files = append(o.Files, b.logs(ctx, o.Say)...)
	}
	left, err := bugreport.Write(ctx, out, o)
	if err != nil {
		return err
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("the archive (--file): %w", err)
	}
	for _, text := range left {
		o.Say("left out: %s", text)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), b.output)
	return err
}

// page reads a page of the control plane as it is.
func (b *bugReport) page(ctx context.Context, page string, query url.Values) ([]byte, error) {
	at, err := console.PageAt(*b.address, page, query)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err == nil && resp.StatusCode != http.StatusOK && page != "/ready" { // which says why, if it is not
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body[:min(len(body), 500)])))
	}
	return body, err
}

// logs returns the logs of the pods of the control plane and of some proxies, to be read later.
func (b *bugReport) logs(ctx context.Context, say func(string, ...any)) (files []bugreport.File) {
	missing := func(err error) []bugreport.File {
		return []bugreport.File{{Name: "logs", Read: func(context.Context) ([]byte, error) { return nil, err }}}
	}
	access, err := b.Connect()
	if err != nil {
		return missing(errors.New("no cluster is reachable: name a kubeconfig with --kubeconfig"))
	}
	client, err := pods.Connect(access)
	if err != nil {
		return missing(err)
	}
	log := func(namespace, pod, container string) {
		files = append(files, bugreport.File{Name: fmt.Sprintf("logs/%s/%s/%s.log", namespace, pod, container), Read: func(ctx context.Context) ([]byte, error) {
			return client.Log(ctx, namespace, pod, container, b.since)
		}})
	}
	say("looking for pods in the namespace %s", b.Namespace)
	list, err := client.List(ctx, b.Namespace)
	if err != nil {
		return missing(err)
	}
	for _, pod := range list {
		files = append(files, bugreport.File{Name: "cluster/" + pod.Name + ".json", Read: func(context.Context) ([]byte, error) { return pod.State, nil }})
		for _, container := range pod.Containers {
			log(pod.Namespace, pod.Name, container)
		}
	}
	for i, name := range console.ProxyNames(ctx, *b.address) {
		if dot := strings.LastIndexByte(name, '.'); dot > 0 && i < b.proxies && len(files) < maxLogs && name[dot+1:] != b.Namespace {
			log(name[dot+1:], name[:dot], "istio-proxy")
		}
	}
	return files
}
