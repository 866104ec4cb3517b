package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pilotmesh/pilot/internal/agent/cni/chain"
	"github.com/pilotmesh/pilot/internal/agent/cni/node"
	"github.com/pilotmesh/pilot/internal/agent/cni/plugin"
	"github.com/pilotmesh/pilot/internal/agent/cni/repair"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

const installHelp = `install is the host agent, which a DaemonSet runs on each node. It installs this program as plugin on its node, puts it behind the plugin
of the cluster's network, and does so again whenever another program replaces that configuration. It captures the traffic of pods that the
plugin asks about, and repairs pods that started without it. It answers /healthz, and /readyz once all is in place.

At the end, it removes the plugin if its DaemonSet is deleted, and leaves it where it is otherwise: without an agent, the plugin lets each pod
pass, and pods of the mesh wait in their container istio-validation.

Exit codes: 0 it was asked to stop; 1 a part of it failed; 2 the command line is invalid.`

// grace is how long the parts may take to stop. It is below the usual time that a pod has.
const grace = 25 * time.Second

// options are the flags of install.
type options struct {
	kubeconfig, node, namespace, daemonSet string
	binDir, confDir, confName, runDir      string
	chained                                bool
	exclude                                []string
	repair, label, proc                    string
	http, levels                           string
	json                                   bool
}

func install(environ []string) *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the plugin on this node, and capture the traffic of its pods",
		Long:  installHelp,
		Example: `  # as the chart pilot-cni runs it
  pilot-cni install --node "$NODE_NAME" --daemonset istio-cni-node --namespace istio-system

  # delete pods that started before the plugin, instead of repairing them
  pilot-cni install --node "$NODE_NAME" --repair delete`,
		Args: cobra.NoArgs,
	}
	variable := func(name string) string {
		for _, v := range environ {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the address of the API server and credentials (default the account of the pod)")
	f.StringVar(&o.node, "node", variable("NODE_NAME"), "name of this node (default the variable NODE_NAME)")
	f.StringVarP(&o.namespace, "namespace", "n", variable("POD_NAMESPACE"), "namespace of the DaemonSet (default the variable POD_NAMESPACE)")
	f.StringVar(&o.daemonSet, "daemonset", "", "the DaemonSet that runs this command; if it is deleted, the plugin is removed at the end")
	f.StringVar(&o.binDir, "bin-dir", "/host/opt/cni/bin", "folder of the host for plugins")
	f.StringVar(&o.confDir, "conf-dir", "/host/etc/cni/net.d", "folder of the host for configurations of networks")
	f.StringVar(&o.confName, "conf-name", "", "configuration that the plugin is put into (default the first one by name)")
	f.BoolVar(&o.chained, "chained", true, "put the plugin into a configuration; otherwise it has one of its own, as Multus wants it")
	f.StringVar(&o.runDir, "run-dir", "/var/run/pilot-cni", "folder for the socket of the plugin, the same on the host as in this container")
	f.StringSliceVar(&o.exclude, "exclude-namespaces", nil, "namespaces whose pods are never captured")
	f.StringVar(&o.repair, "repair", string(repair.Repair), "what happens to pods of the mesh that started without the plugin: repair, delete, label or off")
	f.StringVar(&o.label, "broken-label", "cni.istio.io/uninitialized=true", "label for --repair label, KEY=VALUE")
	f.StringVar(&o.proc, "proc-dir", "/host/proc", "where the file system proc of the host is mounted")
	f.StringVar(&o.http, "http", ":8000", "address of the pages /healthz and /readyz")
	f.StringVar(&o.levels, "log_output_level", "info", "log level: debug, info, warn, error or none")
	f.BoolVar(&o.json, "log_as_json", false, "write the log as JSON lines")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return run.Usage(err)
		}
		log, err := o.logger(cmd.ErrOrStderr())
		if err != nil {
			return run.Usage(err)
		}
		return o.wire(cmd.Context(), log)
	}
	return c
}

func (o *options) check() error {
	key, _, ok := strings.Cut(o.label, "=")
	switch {
	case o.node == "":
		return errors.New("--node: the name of this node is missing; a DaemonSet gets it from the field spec.nodeName")
	case o.repair != string(repair.Repair) && o.repair != string(repair.Delete) && o.repair != string(repair.Label) && o.repair != string(repair.Off):
		return fmt.Errorf("--repair: %q is none of repair, delete, label and off", o.repair)
	case !ok || key == "":
		return fmt.Errorf("--broken-label: %q is not KEY=VALUE", o.label)
	case o.daemonSet != "" && o.namespace == "":
		return errors.New("--daemonset needs --namespace")
	}
	return nil
}

func (o *options) logger(w io.Writer) (*slog.Logger, error) {
	log := logging.New(w, o.json, nil)
	return log, logging.Of(log).Set(o.levels)
}

// clients returns clients of two groups: the program is also the plugin, and starts for each pod, so that it does not have the clients of all groups.
func (o *options) clients() (*kubeclient.Core, *kubeclient.Apps, error) {
	// Without a file, the credentials of the pod, whose token is read again when it changes.
	c, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("the API server: %w; run this command in a pod, or name a file with --kubeconfig", err)
	}
	c.UserAgent = plugin.Type
	pods, err := kubeclient.NewCore(c)
	if err != nil {
		return nil, nil, fmt.Errorf("the API server: %w", err)
	}
	daemonSets, err := kubeclient.NewApps(c)
	return pods, daemonSets, err
}

func (o *options) installer(log *slog.Logger) (*chain.Installer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &chain.Installer{
		Program: program, BinDir: o.binDir, ConfDir: o.confDir, ConfName: o.confName, Chained: o.chained, Log: log,
		Entry: chain.Entry{Type: plugin.Type, RunDir: o.runDir, ExcludeNamespaces: o.exclude},
	}, nil
}

// wire makes the parts of the host agent, and runs them.
func (o *options) wire(ctx context.Context, log *slog.Logger) error {
	client, daemonSets, err := o.clients()
	if err != nil {
		return err
	}
	rules, err := node.NewRules(log, "/proc/self/ns/net", filepath.Join(o.proc, "1", "ns", "net"))
	if err != nil {
		return err
	}
	pods, err := node.NewPods(client, o.node)
	if err != nil {
		return err
	}
	installer, err := o.installer(log)
	if err != nil {
		return err
	}
	l, err := node.Listen(o.runDir)
	if err != nil {
		return err
	}
	server := &node.Server{Find: pods.Find, Rules: rules, Log: log}
	g := run.New(log, grace)
	g.Add(run.ListenHTTP("pages", o.http, pages(installer, pods), time.Second, log))
	if o.repair != string(repair.Off) {
		key, value, _ := strings.Cut(o.label, "=")
		c := repair.New(client, pods, rules, repair.Settings{Mode: repair.Mode(o.repair), Key: key, Value: value, Proc: o.proc, Node: o.node, Source: plugin.Type}, log)
		if err := c.Start(); err != nil {
			return err
		}
		g.Add(run.Actor{Name: "repair", Run: c.Run})
	}
	g.Add(run.Actor{Name: "pods", Run: pods.Run})
	g.Add(run.Actor{Name: "plugin", Run: func(ctx context.Context) error { return server.Serve(ctx, l) }})
	// It is stopped first: when the socket is gone, the plugin may be, too.
	g.Add(run.Actor{Name: "installer", Run: func(ctx context.Context) error {
		err := installer.Run(ctx)
		if deleted(context.WithoutCancel(ctx), daemonSets, o.namespace, o.daemonSet, log) {
			return errors.Join(err, installer.Remove())
		}
		return err
	}})
	return g.Run(ctx)
}

// pages answers whether the agent lives, and whether all is in place.
func pages(i *chain.Installer, pods *node.Pods) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := i.Err()
		if err == nil && !pods.Synced() {
			err = errors.New("the pods of the node have not been read yet")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return m
}
