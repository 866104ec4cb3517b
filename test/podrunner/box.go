package podrunner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/podrunner/cni"
	"github.com/pilotmesh/pilot/test/podrunner/pod"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
)

// makeSandbox makes what the pod's containers share.
func (w *worker) makeSandbox() {
	object := w.pod()
	config := sandbox.PodConfig{
		Hostname: hostname(object, w.node.options.Domain), HostNetwork: object.Spec.HostNetwork, HostIPC: object.Spec.HostIPC,
		Settings: make(map[string]string),
	}
	if context := object.Spec.SecurityContext; context != nil {
		for _, setting := range context.Sysctls {
			config.Settings[setting.Name] = setting.Value
		}
	}
	if object.Spec.HostNetwork {
		config.Hostname = w.node.options.Node
	}
	box, err := w.node.host.NewPod(config)
	if err != nil {
		w.post(pod.SandboxFailed{Message: err.Error()})
		return
	}
	if err := w.attach(object, box); err != nil {
		w.post(pod.SandboxFailed{Message: errors.Join(err, box.Close()).Error()})
		return
	}
	const shmSize = 64 << 20
	shm, err := sandbox.Memory(shmSize)
	if err != nil {
		shm = nil
		w.node.log.Warn("no shared memory for a pod", "pod", object.Name, "error", err)
	}
	w.mu.Lock()
	w.box, w.shm = box, shm
	w.mu.Unlock()
	var ips []string
	for _, address := range box.Addresses() {
		ips = append(ips, address.String())
	}
	if err := w.writeFiles(object, ips); err != nil {
		w.dropSandbox()
		w.post(pod.SandboxFailed{Message: err.Error()})
		return
	}
	w.post(pod.SandboxUp{IPs: ips})
}

// attach lets CNI plugins change the network of a new pod.
func (w *worker) attach(object *v1.Pod, box *sandbox.Pod) error {
	if object.Spec.HostNetwork {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, syncTimeout)
	defer cancel()
	return w.node.options.CNI.Add(ctx, w.attachment(object, box))
}

// detach calls CNI plugins at the end of a pod. A failure is only logged, because the network is removed in any case.
func (w *worker) detach(object *v1.Pod, box *sandbox.Pod) {
	if object.Spec.HostNetwork {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), syncTimeout)
	defer cancel()
	if err := w.node.options.CNI.Del(ctx, w.attachment(object, box)); err != nil {
		w.node.log.Warn("a CNI plugin has failed", "pod", object.Name, "error", err)
	}
}

func (w *worker) attachment(object *v1.Pod, box *sandbox.Pod) cni.Pod {
	return cni.Pod{
		Namespace: object.Namespace, Name: object.Name, UID: string(object.UID), Sandbox: string(object.UID), Network: box.Network(), Addresses: box.Addresses(),
	}
}

// dropSandbox ends the containers that are left and removes the shared parts. Logs stay.
func (w *worker) dropSandbox() {
	w.mu.Lock()
	box, shm, volumes := w.box, w.shm, w.volumes
	w.box, w.shm, w.volumes = nil, nil, make(map[string]*mounted)
	if w.renewing != nil {
		w.renewing.Stop()
	}
	w.mu.Unlock()
	if box != nil {
		w.detach(w.pod(), box)
		if err := box.Close(); err != nil {
			w.node.log.Warn("a pod's network is not removed", "pod", w.pod().Name, "error", err)
		}
	}
	if shm != nil {
		_ = shm.Close()
	}
	for _, volume := range volumes {
		if volume.tree != nil {
			_ = volume.tree.Close()
		}
	}
	w.remove(filepath.Join(w.dir, "volumes"))
}

func (w *worker) removeFiles() { w.remove(w.dir) }

func (w *worker) remove(path string) {
	if err := os.RemoveAll(path); err != nil {
		w.node.log.Warn("a pod's files are not removed", "pod", w.pod().Name, "error", err)
	}
}

// hostname is what the pod calls itself.
func hostname(object *v1.Pod, domain string) string {
	name := object.Spec.Hostname
	if name == "" {
		name = object.Name
	}
	name = strings.TrimRight(name[:min(len(name), 63)], "-.")
	if full := object.Spec.SetHostnameAsFQDN; full != nil && *full && object.Spec.Subdomain != "" {
		return fullName(object, name, domain)
	}
	return name
}

func fullName(object *v1.Pod, name, domain string) string {
	return fmt.Sprintf("%s.%s.%s.svc.%s", name, object.Spec.Subdomain, object.Namespace, domain)
}

// etc is where a pod's own versions of files in /etc are.
func (w *worker) etc(name string) string { return filepath.Join(w.dir, "etc", name) }

// writeFiles writes the pod's hosts, hostname and resolv.conf.
func (w *worker) writeFiles(object *v1.Pod, ips []string) error {
	name := hostname(object, w.node.options.Domain)
	resolv, err := w.resolvConf(object)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.etc(""), 0o755); err != nil {
		return err
	}
	for file, text := range map[string]string{
		"hosts": hosts(object, name, w.node.options.Domain, ips), "hostname": name + "\n", "resolv.conf": resolv,
	} {
		if err := os.WriteFile(w.etc(file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func hosts(object *v1.Pod, name, domain string, ips []string) string {
	var out strings.Builder
	if machine, err := os.ReadFile("/etc/hosts"); object.Spec.HostNetwork && err == nil {
		out.WriteString("# Kubernetes-managed hosts file (host network).\n" + string(machine))
	} else {
		out.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::\tip6-localnet\nfe00::\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		short, _, _ := strings.Cut(name, ".")
		names := short
		if object.Spec.Subdomain != "" {
			names = fullName(object, short, domain) + "\t" + short
		}
		for _, ip := range ips {
			out.WriteString(ip + "\t" + names + "\n")
		}
	}
	if len(object.Spec.HostAliases) > 0 {
		out.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range object.Spec.HostAliases {
		out.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return out.String()
}

// resolvConf follows the pod's DNS policy.
func (w *worker) resolvConf(object *v1.Pod) (string, error) {
	spec := object.Spec
	var text string
	cluster := spec.DNSPolicy == v1.DNSClusterFirstWithHostNet || spec.DNSPolicy == v1.DNSClusterFirst && !spec.HostNetwork || spec.DNSPolicy == ""
	switch {
	case spec.DNSPolicy == v1.DNSNone:
	case cluster && w.node.options.ClusterDNS.IsValid():
		text = resolver(w.node.options.ClusterDNS, object.Namespace, w.node.options.Domain)
	default:
		machine, err := os.ReadFile("/etc/resolv.conf")
		if err != nil && !os.IsNotExist(err) {
			return "", err
		}
		text = string(machine)
	}
	if spec.DNSConfig == nil {
		return text, nil
	}
	return amend(text, spec.DNSConfig), nil
}

// amend adds a pod's own DNS settings to the settings of its policy.
func amend(text string, more *v1.PodDNSConfig) string {
	parts := map[string][]string{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 {
			parts[fields[0]] = append(parts[fields[0]], fields[1:]...)
		}
	}
	servers := append(parts["nameserver"], more.Nameservers...)
	searches := append(parts["search"], more.Searches...)
	options := parts["options"]
	for _, option := range more.Options {
		options = slices.DeleteFunc(options, func(old string) bool {
			name, _, _ := strings.Cut(old, ":")
			return name == option.Name
		})
		if option.Value != nil {
			options = append(options, option.Name+":"+*option.Value)
		} else {
			options = append(options, option.Name)
		}
	}
	var out strings.Builder
	seen := map[string]bool{}
	for _, server := range servers {
		if !seen[server] {
			out.WriteString("nameserver " + server + "\n")
		}
		seen[server] = true
	}
	if len(searches) > 0 {
		out.WriteString("search " + strings.Join(searches, " ") + "\n")
	}
	if len(options) > 0 {
		out.WriteString("options " + strings.Join(options, " ") + "\n")
	}
	return out.String()
}

// sleep waits, and reports whether it waited to the end.
func (w *worker) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}
