// Package plugin is the CNI plugin: the program that a container runtime starts when it makes or removes the network of a pod.
//
// It stands behind the plugin that gives the pod its addresses, and passes the result of that plugin on. It hands each pod to the host agent, which
// decides and installs the rules (package wire). If the agent has not decided, the pod passes without rules, whatever it is: so no outage of the
// mesh delays pods outside it. A pod of the mesh is safe then as well, because its container istio-validation waits until the agent has repaired
// the pod. A capture that was decided and fails lets the pod's creation fail.
//
// The package starts no goroutines.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/pilotmesh/pilot/internal/agent/cni/wire"
)

// Type is the name of the plugin: of its file, and in configurations.
const Type = "pilot-cni"

// versions are the versions of the CNI specification that the plugin understands.
var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// config is the plugin's entry in the configuration of a network.
type config struct {
	types.PluginConf
	// RunDir is the folder of the agent's socket, on the host.
	RunDir string `json:"cni_agent_run_dir"`
	// ExcludeNamespaces are namespaces whose pods are not even asked about.
	ExcludeNamespaces []string `json:"exclude_namespaces,omitempty"`
}

// limits: the decision is one look-up, and pods outside the mesh wait for it. The result takes some calls of iptables, on a node that starts many pods.
var limits = wire.Limits{Decision: 3 * time.Second, Result: 30 * time.Second}

// Plugin is one call of the plugin.
type Plugin struct {
	// Stderr receives what the operator of the node may want to know.
	Stderr io.Writer
}

// Run does what the variables of the CNI specification ask for, and returns the exit code. The result is on standard output.
func (p Plugin) Run(about string) int {
	funcs := skel.CNIFuncs{
		Add: p.add, Check: p.check,
		// The rules go away with the network namespace.
		Del: func(*skel.CmdArgs) error { return nil },
		GC:  func(*skel.CmdArgs) error { return nil },
		// Without the agent pods can start, so that the network of the node is ready.
		Status: func(*skel.CmdArgs) error { return nil },
	}
	if err := skel.PluginMainFuncsWithError(funcs, version.PluginSupports(versions...), about); err != nil {
		if failed := err.Print(); failed != nil {
			fmt.Fprintln(p.Stderr, errors.Join(err, failed))
		}
		return 1
	}
	return 0
}

func (p Plugin) add(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	if err := p.ask(conf, wire.Add, args); err != nil {
		return err
	}
	var result types.Result = &current.Result{CNIVersion: current.ImplementedSpecVersion}
	if conf.PrevResult != nil {
		result = conf.PrevResult
	}
	return types.PrintResult(result, conf.CNIVersion)
}

func (p Plugin) check(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	return p.ask(conf, wire.Check, args)
}

// ask lets the agent decide about a pod. Its error lets the pod's creation fail.
func (p Plugin) ask(conf *config, command string, args *skel.CmdArgs) error {
	pod := podOf(args.Args)
	if pod.Name == "" || pod.Namespace == "" || slices.Contains(conf.ExcludeNamespaces, pod.Namespace) {
		return nil
	}
	pod.Command = command
	netns, err := os.Open(args.Netns)
	if err != nil {
		return types.NewError(types.ErrInvalidNetNS, "pod "+pod.Pod()+": its network namespace cannot be opened", err.Error())
	}
	defer netns.Close()
	_, err = wire.Ask(context.Background(), conf.RunDir+"/"+wire.Socket, pod, netns, limits)
	if errors.Is(err, wire.ErrUnreachable) {
		fmt.Fprintf(p.Stderr, "%s: pod %s: %v; it passes without capture, and if it is in the mesh, its container istio-validation waits until the agent has repaired it\n",
			Type, pod.Pod(), err)
		return nil
	}
	if err != nil {
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	return nil
}

// parseConfig reads the configuration from standard input.
func parseConfig(stdin []byte) (*config, error) {
	conf := &config{}
	if err := json.Unmarshal(stdin, conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the configuration of "+Type+" cannot be read; pilot-cni install writes it again", err.Error())
	}
	if err := version.ParsePrevResult(&conf.PluginConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the result of the plugin before "+Type+" cannot be read", err.Error())
	}
	return conf, nil
}

// podOf reads the pod from the variable CNI_ARGS. Without a pod, its name is empty.
func podOf(args string) (r wire.Request) {
	for pair := range strings.SplitSeq(args, ";") {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "K8S_POD_NAMESPACE":
			r.Namespace = value
		case "K8S_POD_NAME":
			r.Name = value
		case "K8S_POD_UID":
			r.UID = value
		}
	}
	return r
}
