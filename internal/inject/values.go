package inject

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Values are the Helm values that injection reads. They have the names and meanings of Istio's charts.
type Values struct {
	Revision string   `json:"revision"`
	Global   Global   `json:"global"`
	Gateways Gateways `json:"gateways"`
	Pilot    struct {
		CNI CNI             `json:"cni"`
		Env map[string]Text `json:"env"`
	} `json:"pilot"`
	// FormerCNI is the place of Pilot.CNI in charts of former versions.
	FormerCNI CNI     `json:"istio_cni"`
	Webhook   Webhook `json:"sidecarInjectorWebhook"`
}

// Global are the values under global.
type Global struct {
	Hub              string            `json:"hub"`
	Tag              Text              `json:"tag"`
	Variant          string            `json:"variant"`
	CAAddress        string            `json:"caAddress"`
	CAName           string            `json:"caName"`
	ImagePullPolicy  corev1.PullPolicy `json:"imagePullPolicy"`
	ImagePullSecrets []string          `json:"imagePullSecrets"`
	IstioNamespace   string            `json:"istioNamespace"`
	LogAsJSON        bool              `json:"logAsJson"`
	Logging          struct {
		Level string `json:"level"`
	} `json:"logging"`
	MeshID         string `json:"meshID"`
	MountMtlsCerts bool   `json:"mountMtlsCerts"`
	MultiCluster   struct {
		ClusterName string `json:"clusterName"`
	} `json:"multiCluster"`
	NativeNftables    bool   `json:"nativeNftables"`
	Network           string `json:"network"`
	PilotCertProvider string `json:"pilotCertProvider"`
	SDS               struct {
		Token struct {
			Audience string `json:"aud"`
		} `json:"token"`
	} `json:"sds"`
	STS struct {
		ServicePort Text `json:"servicePort"`
	} `json:"sts"`
	TrustBundleName string      `json:"trustBundleName"`
	Proxy           ProxyValues `json:"proxy"`
	ProxyInit       struct {
		ForceApplyIptables bool   `json:"forceApplyIptables"`
		Image              string `json:"image"`
	} `json:"proxy_init"`
}

// ProxyValues are the values under global.proxy.
type ProxyValues struct {
	AutoInject           string                      `json:"autoInject"`
	CapNetBindService    Text                        `json:"capNetBindService"`
	ClusterDomain        string                      `json:"clusterDomain"`
	ComponentLogLevel    string                      `json:"componentLogLevel"`
	ExcludeIPRanges      Text                        `json:"excludeIPRanges"`
	ExcludeInboundPorts  Text                        `json:"excludeInboundPorts"`
	ExcludeOutboundPorts Text                        `json:"excludeOutboundPorts"`
	Hold                 bool                        `json:"holdApplicationUntilProxyStarts"`
	Image                string                      `json:"image"`
	IncludeIPRanges      Text                        `json:"includeIPRanges"`
	IncludeInboundPorts  Text                        `json:"includeInboundPorts"`
	IncludeOutboundPorts Text                        `json:"includeOutboundPorts"`
	Lifecycle            *corev1.Lifecycle           `json:"lifecycle"`
	LogLevel             string                      `json:"logLevel"`
	OutlierLogPath       string                      `json:"outlierLogPath"`
	Privileged           bool                        `json:"privileged"`
	ReadinessFailures    Text                        `json:"readinessFailureThreshold"`
	ReadinessDelay       Text                        `json:"readinessInitialDelaySeconds"`
	ReadinessPeriod      Text                        `json:"readinessPeriodSeconds"`
	Resources            corev1.ResourceRequirements `json:"resources"`
	SeccompProfile       *corev1.SeccompProfile      `json:"seccompProfile"`
	StartupProbe         struct {
		Enabled          bool  `json:"enabled"`
		FailureThreshold int32 `json:"failureThreshold"`
	} `json:"startupProbe"`
	StatusPort Text   `json:"statusPort"`
	Tracer     string `json:"tracer"`
}

// Gateways are the values about pods of gateways.
type Gateways struct {
	SecurityContext map[string]any         `json:"securityContext"`
	SeccompProfile  *corev1.SeccompProfile `json:"seccompProfile"`
}

// CNI are the values about the plugin that captures traffic in the place of an init container.
type CNI struct {
	Enabled  bool   `json:"enabled"`
	Provider string `json:"provider"`
}

// Webhook are the values about the choice of pods, under sidecarInjectorWebhook.
type Webhook struct {
	AlwaysInjectSelector      []metav1.LabelSelector `json:"alwaysInjectSelector"`
	NeverInjectSelector       []metav1.LabelSelector `json:"neverInjectSelector"`
	DefaultTemplates          []string               `json:"defaultTemplates"`
	EnableNamespacesByDefault bool                   `json:"enableNamespacesByDefault"`
	InjectedAnnotations       map[string]string      `json:"injectedAnnotations"`
	RewriteAppHTTPProbe       bool                   `json:"rewriteAppHTTPProbe"`
}

// Text is a value that users write as text or as a number.
type Text string

// UnmarshalJSON reads text, a number or a truth value.
func (t *Text) UnmarshalJSON(b []byte) error {
	switch {
	case bytes.Equal(b, []byte("null")):
		return nil
	case bytes.HasPrefix(b, []byte(`"`)):
		var s string
		err := json.Unmarshal(b, &s)
		*t = Text(s)
		return err
	case bytes.ContainsAny(b[:1], "[{"):
		return fmt.Errorf("%s is neither text nor a number", b)
	}
	*t = Text(b)
	return nil
}

// DefaultValues are the values that hold where a file says nothing.
func DefaultValues() Values {
	var v Values
	g := &v.Global
	g.IstioNamespace, g.PilotCertProvider, g.SDS.Token.Audience, g.Logging.Level = "istio-system", "istiod", "istio-ca", "default:info"
	g.ProxyInit.Image = proxyImageName
	p := &g.Proxy
	p.AutoInject, p.ClusterDomain, p.ComponentLogLevel, p.LogLevel, p.Image = policyEnabled, "cluster.local", "misc:error", "warning", proxyImageName
	p.IncludeIPRanges, p.IncludeInboundPorts, p.StatusPort, p.Tracer = "*", "*", "15020", "none"
	p.ReadinessFailures, p.ReadinessDelay, p.ReadinessPeriod = "4", "0", "15"
	p.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2000m"), corev1.ResourceMemory: resource.MustParse("1024Mi")},
	}
	p.StartupProbe.Enabled, p.StartupProbe.FailureThreshold = true, 600
	v.Pilot.CNI.Provider = "default"
	v.Webhook.RewriteAppHTTPProbe = true
	return v
}

// ParseValues reads Helm values in YAML over the defaults. In the complete values of an installation, which a control plane has in its
// ConfigMap, missing resources and a missing startup probe mean none: the user has removed them.
func ParseValues(text []byte) (Values, error) {
	v := DefaultValues()
	b, err := yaml.YAMLToJSON(text)
	if err != nil {
		return v, fmt.Errorf("the values are no YAML: %w", err)
	}
	if complete(b) {
		v.Global.Proxy.Resources = corev1.ResourceRequirements{}
		v.Global.Proxy.StartupProbe.Enabled = false
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("the values cannot be used: %w; see the values of Istio's chart istiod for the forms", err)
	}
	removeNulls(b, &v.Global.Proxy)
	if v.FormerCNI.Enabled {
		v.Pilot.CNI = v.FormerCNI
	}
	switch v.Global.Proxy.AutoInject {
	case policyEnabled, policyDisabled:
	default:
		return v, fmt.Errorf("the value global.proxy.autoInject is %q; write enabled or disabled", v.Global.Proxy.AutoInject)
	}
	return v, nil
}

// removeNulls removes the defaults that the values set to null, as Helm does.
func removeNulls(b []byte, p *ProxyValues) {
	type section = map[string]json.RawMessage
	var v struct {
		Global struct {
			Proxy section `json:"proxy"`
		} `json:"global"`
	}
	if json.Unmarshal(b, &v) != nil {
		return
	}
	null := func(text json.RawMessage) bool { return string(text) == "null" }
	if null(v.Global.Proxy["resources"]) {
		p.Resources = corev1.ResourceRequirements{}
	}
	if null(v.Global.Proxy["startupProbe"]) {
		p.StartupProbe.Enabled = false
	}
	var resources struct {
		Limits, Requests section
	}
	if json.Unmarshal(v.Global.Proxy["resources"], &resources) != nil {
		return
	}
	for name, text := range resources.Limits {
		if null(text) {
			delete(p.Resources.Limits, corev1.ResourceName(name))
		}
	}
	for name, text := range resources.Requests {
		if null(text) {
			delete(p.Resources.Requests, corev1.ResourceName(name))
		}
	}
}

// complete reports whether values are of a whole installation: they have entries in all sections, although users seldom write them all.
func complete(b []byte) bool {
	type section = map[string]json.RawMessage
	var v struct {
		Global struct {
			Proxy     section `json:"proxy"`
			ProxyInit section `json:"proxy_init"`
		} `json:"global"`
		Webhook section `json:"sidecarInjectorWebhook"`
	}
	if json.Unmarshal(b, &v) != nil {
		return false
	}
	for _, name := range []string{"autoInject", "clusterDomain", "statusPort", "logLevel", "image"} {
		if v.Global.Proxy[name] == nil {
			return false
		}
	}
	return v.Global.ProxyInit["image"] != nil && v.Webhook != nil
}
