// Package inject decides which pods get a proxy, and adds it: pod, mesh configuration, Helm values and namespace go in, the pod with
// its proxy comes out. The webhook, pilotctl kube-inject and pilotctl explain injection use the same functions.
//
// Invariants: a pod is injected as a whole or not at all; an error names the annotation and the remedy. What users write reaches the pod only
// as typed values, never as text in a template. Injection of an injected pod first takes back the former injection, so a repetition changes
// nothing. Everything that is injected is what pilot-agent understands.
//
// The package is pure. It starts no goroutines and keeps no state but the parsed configuration, which is never changed.
package inject

import (
	"fmt"
	"slices"
	"strings"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/inject/owner"
)

// Names of containers.
const (
	proxyName      = "istio-proxy"
	captureName    = "istio-init"
	validationName = "istio-validation"
	grpcInitName   = "grpc-bootstrap-init"
)

const (
	defaultRevision = "default"
	proxyImageName  = "proxyv2"
	defaultHub      = "ghcr.io/pilotmesh"
	// proxyID is the user and the group of the proxy, whose own connections are not captured.
	proxyID = 1337
)

// Config is what injection depends on besides the pod.
type Config struct {
	// Mesh is the mesh configuration over its defaults.
	Mesh   *meshconfig.MeshConfig
	Values Values
	// Revision is the revision of the control plane, "" for one without.
	Revision string
	// ProxyConfigs are the objects of this kind.
	ProxyConfigs []ProxyConfig
	// NativeSidecars makes the proxy an init container that stays running, unless a pod says otherwise.
	NativeSidecars bool
	// Compliance is the policy about TLS that proxies obey.
	Compliance string
	// OpenShift makes the user of the proxy follow from the annotations of the namespace.
	OpenShift bool
	// Tag is the tag of images if the values have none.
	Tag string
}

// ProxyConfig is an object of this kind.
type ProxyConfig struct {
	Namespace, Name string
	Created         time.Time
	Spec            *networking.ProxyConfig
}

// Injector injects the pods of one control plane.
type Injector struct {
	config        Config
	values        Values
	selectors     []Selector
	never, always []labels.Selector
}

// New checks the configuration and returns its Injector.
func New(c Config) (*Injector, error) {
	i := &Injector{config: c, values: c.Values, selectors: webhookSelectors(c.Revision, c.Values.Webhook.EnableNamespacesByDefault)}
	if i.config.Mesh == nil {
		i.config.Mesh = api.DefaultMesh()
	}
	for _, list := range []struct {
		name string
		from []metav1.LabelSelector
		to   *[]labels.Selector
	}{{"never", c.Values.Webhook.NeverInjectSelector, &i.never}, {"always", c.Values.Webhook.AlwaysInjectSelector, &i.always}} {
		for n := range list.from {
			s, err := metav1.LabelSelectorAsSelector(&list.from[n])
			if err != nil {
				return nil, fmt.Errorf("the value sidecarInjectorWebhook.%sInjectSelector[%d] is no label selector: %w", list.name, n, err)
			}
			*list.to = append(*list.to, s)
		}
	}
	for _, name := range c.Values.Webhook.DefaultTemplates {
		if err := knownTemplate(name); err != nil {
			return nil, fmt.Errorf("the value sidecarInjectorWebhook.defaultTemplates: %w", err)
		}
	}
	if err := checkValues(c.Values.Global.Proxy); err != nil {
		return nil, err
	}
	i.config.ProxyConfigs = slices.Clone(c.ProxyConfigs)
	slices.SortStableFunc(i.config.ProxyConfigs, func(a, b ProxyConfig) int {
		if n := a.Created.Compare(b.Created); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	return i, nil
}

// checkValues checks the values that annotations replace, by the same rules.
func checkValues(p ProxyValues) error {
	checks := annotationChecks()
	for _, v := range []struct {
		name, annotation string
		value            Text
	}{
		{"includeIPRanges", includeRangesAnnotation, p.IncludeIPRanges}, {"excludeIPRanges", excludeRangesAnnotation, p.ExcludeIPRanges},
		{"includeInboundPorts", includeInAnnotation, p.IncludeInboundPorts}, {"excludeInboundPorts", excludeInAnnotation, p.ExcludeInboundPorts},
		{"includeOutboundPorts", includeOutAnnotation, p.IncludeOutboundPorts}, {"excludeOutboundPorts", excludeOutAnnotation, p.ExcludeOutboundPorts},
		{"readinessInitialDelaySeconds", delayAnnotation, p.ReadinessDelay}, {"readinessPeriodSeconds", periodAnnotation, p.ReadinessPeriod},
		{"readinessFailureThreshold", failuresAnnotation, p.ReadinessFailures}, {"statusPort", statusPortAnnotation, p.StatusPort},
	} {
		if reason := checks[v.annotation](strings.Join(items(string(v.value)), ",")); reason != "" { // blanks do no harm here
			return fmt.Errorf("the value global.proxy.%s is %q: %s", v.name, v.value, reason)
		}
	}
	return nil
}

// revision returns the name of the revision.
func (i *Injector) revision() string {
	if i.config.Revision == "" {
		return defaultRevision
	}
	return i.config.Revision
}

// Request is a pod to be injected.
type Request struct {
	Pod   *corev1.Pod
	Owner owner.Workload
	// Namespace is the namespace of the pod; nil if nothing but its name is known.
	Namespace *Namespace
	// Cluster and Network, if set, name the cluster that asks, and its network; they go before the values.
	Cluster, Network string
	// Env are further variables of the proxy.
	Env map[string]string
}

// Result is an injected pod.
type Result struct {
	Pod *corev1.Pod
	// Warnings are remarks about annotations without effect.
	Warnings []string
}

// Inject returns the pod with its proxy; the given one stays as it is. An error is a *refusalError, or several in one.
func (i *Injector) Inject(r Request) (Result, error) {
	if err := checkAnnotations(r.Pod.Annotations); err != nil {
		return Result{}, err
	}
	j := &job{injector: i, values: i.values, request: r}
	var err error
	if j.pod, j.own, err = strip(r.Pod); err != nil {
		return Result{}, err
	}
	if j.config, err = i.proxyConfig(j, r.Pod.Namespace); err != nil {
		return Result{}, err
	}
	j.settle()
	names, err := i.templates(j.pod)
	if err != nil {
		return Result{}, err
	}
	parts := part{}
	for _, name := range names {
		if err := j.template(name, &parts); err != nil {
			return Result{}, err
		}
	}
	if err := j.assemble(parts); err != nil {
		return Result{}, err
	}
	return Result{j.pod, j.warnings}, nil
}

// The templates.
const (
	sidecarTemplate    = "sidecar"
	gatewayTemplate    = "gateway"
	grpcAgentTemplate  = "grpc-agent"
	grpcSimpleTemplate = "grpc-simple"
)

func knownTemplate(name string) error {
	known := []string{sidecarTemplate, gatewayTemplate, grpcAgentTemplate, grpcSimpleTemplate}
	if !slices.Contains(known, name) {
		return fmt.Errorf("there is no template %s; name one of %s, and write what a template of your own would change into a container named %s",
			quote(name), strings.Join(known, ", "), proxyName)
	}
	return nil
}

// templates returns the templates of a pod.
func (i *Injector) templates(pod *corev1.Pod) ([]string, error) {
	text, ok := pod.Annotations[templatesAnnotation]
	if !ok {
		if names := i.values.Webhook.DefaultTemplates; len(names) > 0 {
			return names, nil
		}
		return []string{sidecarTemplate}, nil
	}
	if strings.TrimSpace(text) == "" {
		return nil, refuse(templatesAnnotation, "it names no template; name one, such as %s, or remove the annotation", sidecarTemplate)
	}
	names := strings.Split(text, ",")
	for n, name := range names {
		names[n] = strings.TrimSpace(name)
		if err := knownTemplate(names[n]); err != nil {
			return nil, &refusalError{templatesAnnotation, err.Error()}
		}
	}
	return names, nil
}

// NativeSidecars returns whether proxies are init containers that stay running, by the setting ENABLE_NATIVE_SIDECARS: true, false, or auto
// (also if it is empty), which looks at the versions of the kubelets. All nodes must have one that restarts such containers reliably.
func NativeSidecars(setting string, kubelets []string) (bool, error) {
	switch strings.ToLower(setting) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "", "auto":
	default:
		return false, fmt.Errorf("ENABLE_NATIVE_SIDECARS is %q; write true, false or auto", setting)
	}
	const oldest = 33 // the first minor version in which native sidecars are stable
	for _, version := range kubelets {
		var major, minor int
		if _, err := fmt.Sscanf(version, "v%d.%d", &major, &minor); err != nil || major == 1 && minor < oldest {
			return false, nil //nolint:nilerr // a version that cannot be read counts as old
		}
	}
	return len(kubelets) > 0, nil
}
