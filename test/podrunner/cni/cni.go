// Package cni calls CNI plugins that a configuration puts behind the network of a node, as a container runtime does.
//
// The first plugin of a list represents the node's own network: the node has made that network already, and its result has the pod's addresses.
// The configuration is read for each pod, so that a change takes effect at once. The package starts no goroutines.
package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Host has the folders of a machine for configurations and for plugins. Its zero value has no plugins.
type Host struct{ ConfDir, BinDir string }

// Pod has the facts about a pod that plugins get.
type Pod struct {
	Namespace, Name, UID string
	// Sandbox names the pod on the machine.
	Sandbox string
	// Network is the path of its network namespace.
	Network   string
	Addresses []netip.Addr
}

// list is a list of plugins.
type list struct {
	CNIVersion string           `json:"cniVersion"`
	Name       string           `json:"name"`
	Plugins    []map[string]any `json:"plugins"`
}

// Add calls the plugins for a new pod, in their order.
func (h Host) Add(ctx context.Context, p Pod) error {
	l, err := h.list()
	if err != nil || len(l.Plugins) == 0 {
		return err
	}
	type address struct {
		Address string `json:"address"`
	}
	ips := []address{}
	for _, a := range p.Addresses {
		ips = append(ips, address{netip.PrefixFrom(a, a.BitLen()).String()})
	}
	var result any = map[string]any{"cniVersion": l.CNIVersion, "ips": ips}
	for _, conf := range l.Plugins[1:] {
		out, err := h.call(ctx, "ADD", p, l, conf, result)
		if err != nil {
			return err
		}
		result = json.RawMessage(out)
	}
	return nil
}

// Del calls the plugins for a pod that ends, in the opposite order.
func (h Host) Del(ctx context.Context, p Pod) error {
	l, err := h.list()
	if err != nil || len(l.Plugins) == 0 {
		return err
	}
	var failed []error
	for _, conf := range slices.Backward(l.Plugins[1:]) {
		_, err := h.call(ctx, "DEL", p, l, conf, nil)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// list reads the first list of the folder by name.
func (h Host) list() (l list, err error) {
	if h.ConfDir == "" {
		return l, nil
	}
	names, err := filepath.Glob(filepath.Join(h.ConfDir, "*.conflist"))
	if err != nil || len(names) == 0 {
		return l, err
	}
	text, err := os.ReadFile(names[0])
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		return l, fmt.Errorf("the network configuration %s: %w", names[0], err)
	}
	return l, nil
}

// call calls one plugin, and returns its result.
func (h Host) call(ctx context.Context, command string, p Pod, l list, conf map[string]any, result any) ([]byte, error) {
	conf["name"], conf["cniVersion"] = l.Name, l.CNIVersion
	if result != nil {
		conf["prevResult"] = result
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	kind, _ := conf["type"].(string)
	cmd := exec.CommandContext(ctx, filepath.Join(h.BinDir, filepath.Base(kind)))
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+p.Sandbox, "CNI_NETNS="+p.Network, "CNI_IFNAME=eth0", "CNI_PATH="+h.BinDir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+p.Namespace+";K8S_POD_NAME="+p.Name+";K8S_POD_INFRA_CONTAINER_ID="+p.Sandbox+";K8S_POD_UID="+p.UID)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("plugin type=%q failed (%s): %w: %s%s", kind, strings.ToLower(command), err, out.String(), said.String())
	}
	return []byte(out.String()), nil
}
