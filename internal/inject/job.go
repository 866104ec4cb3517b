package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/inject/probe"
	"github.com/pilotmesh/pilot/internal/inject/scrape"
	"github.com/pilotmesh/pilot/internal/inject/tree"
)

// job is the injection of one pod.
type job struct {
	injector *Injector
	values   Values
	request  Request
	pod      *corev1.Pod // without containers of ours; it becomes the result
	own      own
	config   *meshconfig.ProxyConfig
	warnings []string

	// What settle computes.
	native           bool
	mode             string // of capture
	uid, gid         int64
	statusPort       int32
	cluster, network string
}

// part is what templates add to a pod.
type part struct {
	labels, annotations        map[string]string
	initContainers, containers []corev1.Container
	volumes                    []corev1.Volume
	security                   map[string]any
	pullSecrets                bool
}

func (j *job) warn(format string, args ...any) {
	j.warnings = append(j.warnings, fmt.Sprintf(format, args...))
}

// settle computes what several parts of the injection depend on.
func (j *job) settle() {
	g := j.values.Global
	j.mode = annotated(j.pod, interceptionAnnotation, Text(j.config.GetInterceptionMode().String()))
	j.native = j.injector.config.NativeSidecars
	if text := j.pod.Annotations[nativeAnnotation]; text != "" {
		j.native = text != "false"
		if j.native && text != "true" {
			j.warn("annotation %s: %s counts as true; write true or false", nativeAnnotation, quote(text))
		}
	}
	if word, ok := j.pod.Labels[injectName]; ok && word != "true" && word != "false" {
		j.warn("label %s: %s has no effect; write true or false", injectName, quote(word))
	}
	j.uid, j.gid = proxyID, proxyID
	if j.injector.config.OpenShift {
		j.uid, j.gid = j.openshift()
	}
	j.statusPort = j.config.GetStatusPort()
	if port := numbered(j.pod, statusPortAnnotation, "0"); port != 0 {
		j.statusPort = port
	}
	j.cluster = cmp.Or(j.request.Cluster, g.MultiCluster.ClusterName, "Kubernetes")
	j.network = cmp.Or(j.pod.Labels[networkLabel], j.request.Network, g.Network)
}

// assemble puts the parts into the pod.
func (j *job) assemble(t part) error {
	if err := j.customise(&t); err != nil {
		return err
	}
	if containerOf(t, proxyName) != nil {
		if err := j.redirect(&t); err != nil {
			return err
		}
	} else if scrape.Of(j.pod.Annotations).Unset() {
		// Istio points Prometheus at the agent also where none runs. A pod that serves metrics itself is left alone.
		if _, err := j.mergeMetrics(); err != nil {
			return err
		}
	}
	pod := j.pod
	for k, v := range t.labels {
		setIn(&pod.Labels, k, v)
	}
	for k, v := range t.annotations {
		setIn(&pod.Annotations, k, v)
	}
	if j.network != "" {
		setIn(&pod.Labels, networkLabel, j.network)
	}
	added := j.addVolumes(t)
	j.order(t)
	if t.security != nil {
		security := map[string]any{}
		if pod.Spec.SecurityContext != nil {
			var err error
			if security, err = tree.Of(pod.Spec.SecurityContext); err != nil {
				return err
			}
		}
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
		if err := tree.Into(tree.Merge(security, t.security), pod.Spec.SecurityContext); err != nil {
			return fmt.Errorf("the value gateways.securityContext: %w", err)
		}
	}
	return j.note(t, added)
}

// note writes the names of all additions into an annotation, for the next injection.
func (j *job) note(t part, added status) error {
	for _, c := range t.initContainers {
		added.InitContainers = append(added.InitContainers, c.Name)
	}
	for _, c := range t.containers {
		if ours(c.Name) {
			added.Containers = append(added.Containers, c.Name)
		}
	}
	added.Revision = j.injector.revision()
	text, err := json.Marshal(added)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	setIn(&j.pod.Annotations, statusAnnotation, string(text))
	if len(j.own.Containers)+len(j.own.InitContainers) > 0 {
		if text, err = json.Marshal(j.own); err != nil {
			return fmt.Errorf("encoding the containers of the user: %w", err)
		}
		setIn(&j.pod.Annotations, overridesAnnotation, string(text))
	}
	for k, v := range j.values.Webhook.InjectedAnnotations {
		if j.request.Namespace != nil {
			setIn(&j.pod.Annotations, k, v)
		}
	}
	return nil
}

// customise lays the containers that the user wrote over the containers of the templates.
func (j *job) customise(t *part) error {
	for _, list := range []*[]corev1.Container{&t.initContainers, &t.containers} {
		for n, c := range *list {
			user := j.own.find(c.Name)
			if user == nil {
				continue
			}
			merged, err := tree.Overlay(c, *user)
			if err != nil {
				return err
			}
			if c.RestartPolicy != nil {
				merged.RestartPolicy = c.RestartPolicy
			}
			(*list)[n] = merged
		}
	}
	t.containers = j.keep(*t, j.own.Containers, t.containers)
	t.initContainers = j.keep(*t, j.own.InitContainers, t.initContainers)
	j.runAs(t)
	return nil
}

// keep adds the user's containers that the templates do not inject, such as an istio-init although a plugin captures the traffic. One without an
// image only customises a container that is not there.
func (j *job) keep(t part, from, to []corev1.Container) []corev1.Container {
	for _, c := range from {
		switch {
		case containerOf(t, c.Name) != nil:
		case c.Image == "" || c.Image == tree.AutoImage:
			j.warn("container %s: it has no effect, because the template injects no such container", c.Name)
		default:
			to = append(to, c)
		}
	}
	return to
}

// runAs makes the capture spare the user as which the proxy runs, if the pod chose one. With TPROXY the proxy stays root.
func (j *job) runAs(t *part) {
	user := j.own.find(proxyName)
	if user == nil || user.SecurityContext == nil {
		return
	}
	s, proxy := user.SecurityContext, containerOf(*t, proxyName)
	capture := containerOf(*t, captureName)
	if capture == nil {
		capture = containerOf(*t, validationName)
	}
	if capture == nil || s.RunAsUser == nil && s.RunAsGroup == nil {
		return
	}
	tproxy := j.mode == "TPROXY"
	if tproxy {
		root, nonRoot := int64(0), false
		proxy.SecurityContext.RunAsUser, proxy.SecurityContext.RunAsNonRoot = &root, &nonRoot
		// The proxy's connections are known by its group then.
		capture.Env = setEnv(capture.Env, corev1.EnvVar{Name: "PROXY_GID", Value: strconv.FormatInt(*proxy.SecurityContext.RunAsGroup, 10)})
	} else if capture.Name == validationName {
		if s.RunAsUser != nil {
			capture.SecurityContext.RunAsUser = s.RunAsUser
		}
		if s.RunAsGroup != nil {
			capture.SecurityContext.RunAsGroup = s.RunAsGroup
		}
	}
	if n := slices.Index(capture.Args, "-u"); n >= 0 && s.RunAsUser != nil && *s.RunAsUser != 0 {
		capture.Args[n+1] = strconv.FormatInt(*s.RunAsUser, 10)
	}
}

// containerOf returns a container of the templates, nil if there is none with this name.
func containerOf(t part, name string) *corev1.Container {
	spec := corev1.PodSpec{InitContainers: t.initContainers, Containers: t.containers}
	return containerIn(&spec, name)
}

// redirect points probes and Prometheus at the agent, and says to the agent what the pod had.
func (j *job) redirect(t *part) error {
	proxy := containerOf(*t, proxyName)
	metrics, err := j.mergeMetrics()
	if err != nil {
		return err
	}
	rewrite := j.values.Webhook.RewriteAppHTTPProbe
	for _, from := range []map[string]string{j.pod.Annotations, t.annotations} {
		if wanted, err := strconv.ParseBool(from[rewriteAnnotation]); err == nil {
			rewrite = wanted
		}
	}
	var probers string
	_, own := j.pod.Annotations[statusPortAnnotation]
	if rewrite && (!own || numbered(j.pod, statusPortAnnotation, "") != 0) { // with 0 the kubelet asks no agent
		if probers, err = probe.Redirect(j.pod, proxyName, j.statusPort); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{scrapeVariable: metrics, probe.Variable: probers} {
		if value != "" {
			proxy.Env = setEnv(proxy.Env, corev1.EnvVar{Name: name, Value: value})
		}
	}
	proxy.Env = setAll(proxy.Env, j.place())
	slices.SortStableFunc(proxy.Env, func(a, b corev1.EnvVar) int {
		return cmp.Compare(slices.Index([]string{scrapeVariable, probe.Variable}, a.Name), slices.Index([]string{scrapeVariable, probe.Variable}, b.Name))
	})
	return nil
}

// place returns the variables of the proxy that the operator decides, and no pod: the variables of the request, and where the pod runs.
func (j *job) place() map[string]string {
	all := maps.Clone(j.request.Env)
	for name, value := range map[string]string{
		clusterVariable: cmp.Or(j.request.Cluster, j.values.Global.MultiCluster.ClusterName), networkVariable: j.network,
	} {
		if value != "" {
			setIn(&all, name, value)
		}
	}
	return all
}

// addVolumes adds volumes and secrets, and returns which. A volume that the user has under the same name stays: it is the user's way to
// replace ours, such as by the socket of another authority.
func (j *job) addVolumes(t part) (added status) {
	spec := &j.pod.Spec
	added = status{InitContainers: []string{}, Containers: []string{}, Volumes: []string{}, ImagePullSecrets: []string{}}
	for _, v := range t.volumes {
		if !slices.ContainsFunc(spec.Volumes, func(u corev1.Volume) bool { return u.Name == v.Name }) {
			spec.Volumes = append(spec.Volumes, v)
			added.Volumes = append(added.Volumes, v.Name)
		}
	}
	if !t.pullSecrets {
		return added
	}
	for _, name := range j.values.Global.ImagePullSecrets {
		secret := corev1.LocalObjectReference{Name: name}
		if !slices.Contains(spec.ImagePullSecrets, secret) {
			spec.ImagePullSecrets = append(spec.ImagePullSecrets, secret)
			added.ImagePullSecrets = append(added.ImagePullSecrets, name)
		}
	}
	return added
}

// order adds the containers in the order in which they must start. A proxy that holds the application is the first container, otherwise
// it is the last, so that kubectl exec finds the application. A native sidecar comes right after the capture and before all other init
// containers, so that these can use it; without one, the capture comes last, so that they do not need it.
func (j *job) order(t part) {
	spec := &j.pod.Spec
	for _, c := range t.containers {
		at := slices.IndexFunc(spec.Containers, func(u corev1.Container) bool { return u.Name == c.Name })
		switch {
		case at >= 0:
			spec.Containers[at] = c // the application's, with what the template adds
		case c.Name == proxyName && j.holds():
			spec.Containers = slices.Insert(spec.Containers, 0, c)
		default:
			spec.Containers = append(spec.Containers, c)
		}
	}
	native := slices.ContainsFunc(t.initContainers, func(c corev1.Container) bool { return c.Name == proxyName })
	before := items(j.pod.Annotations[beforeAnnotation])
	rank := func(c corev1.Container) int {
		switch {
		case c.Name == validationName, native && c.Name == captureName:
			return 0
		case native && slices.Contains(before, c.Name):
			return 1 + slices.Index(before, c.Name)
		case c.Name == proxyName:
			return 1 + len(before)
		case c.Name == captureName:
			return 3 + len(before)
		}
		return 2 + len(before)
	}
	spec.InitContainers = slices.Concat(spec.InitContainers, t.initContainers)
	slices.SortStableFunc(spec.InitContainers, func(a, b corev1.Container) int { return cmp.Compare(rank(a), rank(b)) })
	if len(spec.InitContainers) == 0 {
		spec.InitContainers = nil
	}
}

// holds reports whether the application waits for the proxy.
func (j *job) holds() bool {
	return j.config.GetHoldApplicationUntilProxyStarts().GetValue() || j.values.Global.Proxy.Hold
}

// setEnv sets a variable, and replaces the one of the same name.
func setEnv(env []corev1.EnvVar, v corev1.EnvVar) []corev1.EnvVar {
	if n := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == v.Name }); n >= 0 {
		env[n] = v
		return env
	}
	return append(env, v)
}

// setAll sets variables in the order of their names.
func setAll(env []corev1.EnvVar, values map[string]string) []corev1.EnvVar {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = setEnv(env, corev1.EnvVar{Name: name, Value: values[name]})
	}
	return env
}

// openshift returns user and group of the proxy by the annotations of the namespace, which say what its pods may be: the last of
// each range, because the application has the first.
func (j *job) openshift() (uid, gid int64) {
	uid, gid = proxyID, proxyID
	n := j.request.Namespace
	if n == nil {
		return uid, gid
	}
	const users, groups = "openshift.io/sa.scc.uid-range", "openshift.io/sa.scc.supplemental-groups"
	if last, ok := lastOfRange(n.Annotations[users]); ok {
		uid = last
	}
	first, _, _ := strings.Cut(cmp.Or(n.Annotations[groups], n.Annotations[users]), ",")
	if last, ok := lastOfRange(first); ok {
		gid = last
	}
	if c := j.own.find(proxyName); c != nil && c.SecurityContext != nil && sameUser(c, j.pod.Spec.Containers) {
		// OpenShift gives all containers the same user; the capture could not distinguish the connections of such a proxy from the application's.
		c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup = nil, nil
	}
	return uid, gid
}

// sameUser reports whether a container runs as the user of another one.
func sameUser(c *corev1.Container, others []corev1.Container) bool {
	return c.SecurityContext.RunAsUser != nil && slices.ContainsFunc(others, func(o corev1.Container) bool {
		return o.SecurityContext != nil && o.SecurityContext.RunAsUser != nil && *o.SecurityContext.RunAsUser == *c.SecurityContext.RunAsUser
	})
}

// lastOfRange returns the last number of a range FIRST/COUNT or FIRST-LAST.
func lastOfRange(text string) (int64, bool) {
	separator := "/"
	if !strings.Contains(text, separator) {
		separator = "-"
	}
	a, b, ok := strings.Cut(text, separator)
	first, err := strconv.ParseUint(strings.TrimSpace(a), 10, 32)
	second, err2 := strconv.ParseUint(strings.TrimSpace(b), 10, 32)
	if !ok || err != nil || err2 != nil {
		return 0, false
	}
	if separator == "/" {
		second = first + second - 1
	}
	return int64(second), second > 0
}
