package inject

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// capture returns the init container that makes the pod's traffic go through the proxy, or checks that the CNI plugin has done so; nil
// without capture.
func (j *job) capture() *corev1.Container {
	if j.mode == "NONE" {
		return nil
	}
	g := j.values.Global
	c := &corev1.Container{
		Name: captureName, Image: j.image(g.ProxyInit.Image, ""), ImagePullPolicy: g.ImagePullPolicy,
		Args: j.captureArguments(), Env: setAll(nil, j.config.GetProxyMetadata()), Resources: j.resources(),
	}
	if j.values.Pilot.CNI.Enabled {
		c.Name = validationName
		uid, gid := j.spared()
		c.SecurityContext = securityContext(g.Proxy.Privileged, uid, gid, true, true, nil, g.Proxy.SeccompProfile)
	} else {
		c.SecurityContext = securityContext(g.Proxy.Privileged, 0, 0, false, false, []corev1.Capability{"NET_ADMIN", "NET_RAW"}, g.Proxy.SeccompProfile)
	}
	return c
}

// captureArguments returns the command line of the capture.
func (j *job) captureArguments() []string {
	g := j.values.Global
	mesh := j.injector.config.Mesh
	uid, _ := j.spared()
	args := []string{
		"istio-iptables", "-p", port(mesh.GetProxyListenPort(), "15001"), "-z", port(mesh.GetProxyInboundListenPort(), "15006"),
		"-u", strconv.FormatInt(uid, 10), "-m", j.mode,
		"-i", annotated(j.pod, includeRangesAnnotation, g.Proxy.IncludeIPRanges), "-x", annotated(j.pod, excludeRangesAnnotation, g.Proxy.ExcludeIPRanges),
		"-b", annotated(j.pod, includeInAnnotation, g.Proxy.IncludeInboundPorts), "-d", strings.Join(j.sparedPorts("15090", "15021"), ","),
	}
	interfaces := cmp.Or(j.pod.Annotations[rerouteAnnotation], j.pod.Annotations[kubevirtAnnotation])
	for _, o := range []struct{ flag, value string }{
		{"-q", annotated(j.pod, includeOutAnnotation, g.Proxy.IncludeOutboundPorts)}, {"-o", annotated(j.pod, excludeOutAnnotation, g.Proxy.ExcludeOutboundPorts)},
		{"-k", interfaces}, {"-c", j.pod.Annotations[interfacesAnnotation]},
	} {
		if o.value != "" {
			args = append(args, o.flag, o.value)
		}
	}
	args = append(args, j.agentLevel())
	if g.LogAsJSON {
		args = append(args, "--log_as_json")
	}
	switch {
	case j.values.Pilot.CNI.Enabled:
		args = append(args, "--run-validation", "--skip-rule-apply")
	case g.ProxyInit.ForceApplyIptables:
		args = append(args, "--force-apply")
	}
	if g.NativeNftables {
		args = append(args, "--native-nftables")
	}
	return args
}

// spared returns the user and the group whose connections are not captured. With TPROXY the proxy is root, and its group is known.
func (j *job) spared() (uid, gid int64) {
	if j.mode == "TPROXY" {
		return proxyID, proxyID
	}
	return j.uid, j.gid
}

func port(n int32, normal string) string {
	if n == 0 {
		return normal
	}
	return strconv.Itoa(int(n))
}

// sparedPorts returns the inbound ports that are not captured: first, the ports of annotation or values, and the ports at which the kubelet
// asks the agent.
func (j *job) sparedPorts(first ...string) []string {
	p := j.values.Global.Proxy
	list := append(first, items(annotated(j.pod, excludeInAnnotation, p.ExcludeInboundPorts))...)
	status := []string{strings.TrimSpace(annotated(j.pod, statusPortAnnotation, p.StatusPort))}
	if _, ok := j.pod.Annotations[statusPortAnnotation]; !ok {
		status = append(status, statusText(j.statusPort))
	}
	for _, s := range status {
		if s != "" && s != "0" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// pluginAnnotations adds the annotations by which a CNI plugin learns what to capture.
func (j *job) pluginAnnotations(into map[string]string) error {
	cni, p := j.values.Pilot.CNI, j.values.Global.Proxy
	if !cni.Enabled {
		return nil
	}
	if cni.Provider == "multus" {
		list, err := withNetwork(j.pod.Annotations[multusAnnotation])
		if err != nil {
			return err
		}
		into[multusAnnotation] = list
	}
	into[interceptionAnnotation] = j.mode
	for _, a := range []struct {
		name  string
		value Text
	}{
		{includeRangesAnnotation, p.IncludeIPRanges}, {excludeRangesAnnotation, p.ExcludeIPRanges},
		{includeOutAnnotation, p.IncludeOutboundPorts}, {excludeOutAnnotation, p.ExcludeOutboundPorts}, {kubevirtAnnotation, ""}, {rerouteAnnotation, ""},
		{interfacesAnnotation, ""},
	} {
		if value := annotated(j.pod, a.name, a.value); value != "" {
			into[a.name] = value
		}
	}
	into[includeInAnnotation] = annotated(j.pod, includeInAnnotation, p.IncludeInboundPorts) // a plugin takes an absent one for all ports
	into[excludeInAnnotation] = strings.Join(j.sparedPorts(), ",")
	return nil
}

// withNetwork adds the attachment of the CNI plugin to the networks of a pod, which are words or JSON.
func withNetwork(networks string) (string, error) {
	const namespace, name = "default", "istio-cni"
	if strings.HasPrefix(strings.TrimSpace(networks), "[") {
		var list []map[string]any
		if err := json.Unmarshal([]byte(networks), &list); err != nil {
			return "", refuse(multusAnnotation, "%s is no JSON list of networks: %v", quote(networks), err)
		}
		for _, n := range list {
			if n["name"] == name && n["namespace"] == namespace {
				return networks, nil
			}
		}
		b, err := json.Marshal(append(list, map[string]any{"name": name, "namespace": namespace}))
		return string(b), err
	}
	list := items(networks)
	if !slices.Contains(list, namespace+"/"+name) {
		list = append(list, namespace+"/"+name)
	}
	return strings.Join(list, ", "), nil
}
