package console

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pilotmesh/pilot/internal/ctl/install/pods"
)

const (
	// defaultAddress is where a control plane on this host has its pages.
	defaultAddress = "http://127.0.0.1:8080"
	// pagesPort is the port of the pages in a pod of the control plane.
	pagesPort = 8080
	// tunnelTime limits how long a command looks for a control plane on a cluster.
	tunnelTime = 5 * time.Second
)

// Tunnel makes a command that asks a control plane ask one of the cluster of the kubeconfig, if no --address is given and none is on this host. Then it
// says so on the standard error. Without such a cluster the command fails as before. The tunnel ends with the context of
// the command.
func Tunnel(cmd *cobra.Command) {
	address := cmd.Flags().Lookup("address")
	if elsewhere(cmd) || address == nil || address.Changed || strings.Trim(address.DefValue, "[]") != defaultAddress || answers(cmd.Context()) {
		return
	}
	given := func(flag string) string {
		if f := cmd.Flags().Lookup(flag); f != nil {
			return f.Value.String()
		}
		return ""
	}
	kubeconfig := given("kubeconfig")
	if kubeconfig == "" && !anyKubeconfig() {
		return
	}
	local, pod, err := forward(cmd.Context(), kubeconfig, given("context"), given("revision"))
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "no control plane is reached by the kubeconfig: %v\n", err)
		return
	}
	// It fails only if the address is no address.
	_ = address.Value.Set("http://" + local)
	address.Changed = true
	fmt.Fprintf(cmd.ErrOrStderr(), "asking %s\n", pod)
}

// elsewhere reports whether a command is given another place to ask: Envoy itself, or a file instead of it.
func elsewhere(cmd *cobra.Command) bool {
	for _, flag := range []string{"admin", "file"} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Changed && f.DefValue == "" {
			return true
		}
	}
	return false
}

// answers reports whether something listens at the usual address.
func answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, Completing)
	defer cancel()
	var dial net.Dialer
	c, err := dial.DialContext(ctx, "tcp", strings.TrimPrefix(defaultAddress, "http://"))
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// anyKubeconfig reports whether there is a kubeconfig with a cluster.
func anyKubeconfig() bool {
	config, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	return err == nil && config.CurrentContext != "" || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// forward opens a tunnel to a pod of a control plane, and describes the pod.
func forward(ctx context.Context, kubeconfig, in, revision string) (local, pod string, err error) {
	access, err := Connect(kubeconfig, in)
	if err != nil {
		return "", "", err
	}
	looking, cancel := context.WithTimeout(ctx, tunnelTime)
	defer cancel()
	client, err := pods.Connect(access)
	if err != nil {
		return "", "", err
	}
	list, err := client.ControlPlane(looking, revision)
	if err != nil {
		return "", "", err
	}
	if len(list) == 0 {
		return "", "", errors.New("the cluster has no ready pod with the label app=istiod")
	}
	namespace, name := list[0][0], list[0][1]
	local, end, err := pods.Forward(looking, access, namespace, name, pagesPort)
	if err != nil {
		return "", "", fmt.Errorf("a tunnel to the pod %s/%s: %w; may you create pods/portforward there?", namespace, name, err)
	}
	context.AfterFunc(ctx, end)
	pod = namespace + "/" + name
	if len(list) > 1 {
		pod += fmt.Sprintf(", one of %d replicas, and each knows its own proxies only (--address names another)", len(list))
	}
	return local, pod, nil
}
