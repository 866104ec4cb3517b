package inject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pilotmesh/pilot/internal/inject/scrape"
)

// Labels and annotations of pods.
const (
	injectName     = "sidecar.istio.io/inject" // a label; as an annotation it is older
	revisionName   = "istio.io/rev"
	namespaceLabel = "istio-injection"
	namespaceName  = "kubernetes.io/metadata.name"
	networkLabel   = "topology.istio.io/network"
	tlsModeLabel   = "security.istio.io/tlsMode"
	tunnelLabel    = "networking.istio.io/tunnel"
	nameLabel      = "service.istio.io/canonical-name"
	versionLabel   = "service.istio.io/canonical-revision"
	workloadLabel  = "service.istio.io/workload-name"

	templatesAnnotation = "inject.istio.io/templates"
	statusAnnotation    = "sidecar.istio.io/status"
	overridesAnnotation = "proxy.istio.io/overrides"
	configAnnotation    = "proxy.istio.io/config"
	beforeAnnotation    = "sidecar.istio.io/init-containers-before-proxy"

	interceptionAnnotation  = "sidecar.istio.io/interceptionMode"
	nativeAnnotation        = "sidecar.istio.io/nativeSidecar"
	imageAnnotation         = "sidecar.istio.io/proxyImage"
	imageTypeAnnotation     = "sidecar.istio.io/proxyImageType"
	logLevelAnnotation      = "sidecar.istio.io/logLevel"
	componentsAnnotation    = "sidecar.istio.io/componentLogLevel"
	agentLogAnnotation      = "sidecar.istio.io/agentLogLevel"
	bootstrapAnnotation     = "sidecar.istio.io/bootstrapOverride"
	bindAnnotation          = "sidecar.istio.io/capNetBindService"
	userVolumeAnnotation    = "sidecar.istio.io/userVolume"
	userMountAnnotation     = "sidecar.istio.io/userVolumeMount"
	rewriteAnnotation       = "sidecar.istio.io/rewriteAppHTTPProbers"
	cpuAnnotation           = "sidecar.istio.io/proxyCPU"
	cpuLimitAnnotation      = "sidecar.istio.io/proxyCPULimit"
	memoryAnnotation        = "sidecar.istio.io/proxyMemory"
	memoryLimitAnnotation   = "sidecar.istio.io/proxyMemoryLimit"
	statusPortAnnotation    = "status.sidecar.istio.io/port"
	delayAnnotation         = "readiness.status.sidecar.istio.io/initialDelaySeconds"
	periodAnnotation        = "readiness.status.sidecar.istio.io/periodSeconds"
	failuresAnnotation      = "readiness.status.sidecar.istio.io/failureThreshold"
	includeRangesAnnotation = "traffic.sidecar.istio.io/includeOutboundIPRanges"
	excludeRangesAnnotation = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
	includeInAnnotation     = "traffic.sidecar.istio.io/includeInboundPorts"
	excludeInAnnotation     = "traffic.sidecar.istio.io/excludeInboundPorts"
	includeOutAnnotation    = "traffic.sidecar.istio.io/includeOutboundPorts"
	excludeOutAnnotation    = "traffic.sidecar.istio.io/excludeOutboundPorts"
	interfacesAnnotation    = "traffic.sidecar.istio.io/excludeInterfaces"
	kubevirtAnnotation      = "traffic.sidecar.istio.io/kubevirtInterfaces"
	rerouteAnnotation       = "istio.io/reroute-virtual-interfaces"

	mergeAnnotation      = "prometheus.istio.io/merge-metrics"
	targetsAnnotation    = "prometheus.istio.io/scrape-targets"
	securePortAnnotation = "prometheus.istio.io/secure-port"
	datadogAnnotation    = "apm.datadoghq.com/env"
	multusAnnotation     = "k8s.v1.cni.cncf.io/networks"
	logsAnnotation       = "kubectl.kubernetes.io/default-logs-container"
	containerAnnotation  = "kubectl.kubernetes.io/default-container"
)

// refusalError says why a pod is not injected, nor admitted without a proxy.
type refusalError struct {
	// Annotation is the annotation at fault; empty if it is something else.
	Annotation string
	// Reason is the mistake and its correction.
	Reason string
}

// Error names the annotation and the remedy.
func (r *refusalError) Error() string {
	if r.Annotation == "" {
		return r.Reason
	}
	return "annotation " + r.Annotation + ": " + r.Reason
}

// refuse returns the refusal of an annotation.
func refuse(annotation, format string, args ...any) error {
	return &refusalError{annotation, fmt.Sprintf(format, args...)}
}

// checkAnnotations refuses values that the proxy or the capture could not use.
func checkAnnotations(annotations map[string]string) error {
	if err := checkSize(annotations); err != nil {
		return err
	}
	checks := annotationChecks()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		check := checks[name]
		if check == nil {
			continue
		}
		if reason := check(annotations[name]); reason != "" {
			errs = append(errs, refuse(name, "%s: %s", quote(annotations[name]), reason))
		}
	}
	return errors.Join(errs...)
}

// annotationBytes is how many bytes the names and values of an object's annotations may have together. API servers refuse more:
// TotalAnnotationSizeLimitB of k8s.io/apimachinery/pkg/api/validation.
const annotationBytes = 256 << 10

// checkSize refuses annotations that no API server would store, before anything reads them. The error names the largest one.
func checkSize(annotations map[string]string) error {
	largest, all := "", 0
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		all += len(name) + len(annotations[name])
		if largest == "" || len(annotations[name]) > len(annotations[largest]) {
			largest = name
		}
	}
	if all <= annotationBytes {
		return nil
	}
	return refuse(largest, "the annotations of the pod have %d bytes together, and Kubernetes allows %d; shorten this one, which has %d", all, annotationBytes, len(annotations[largest]))
}

// quote quotes a value for a message; a long one is cut.
func quote(s string) string {
	const longest = 80
	if len(s) > longest {
		return strconv.Quote(strings.ToValidUTF8(s[:longest], "")) + "…"
	}
	return strconv.Quote(s)
}

// annotationChecks returns for each annotation with a form of its own the check of a value, which returns the mistake.
func annotationChecks() map[string]func(string) string {
	starOr := func(check func(string) string) func(string) string {
		return func(s string) string {
			if s == "*" {
				return ""
			}
			return check(s)
		}
	}
	return map[string]func(string) string{
		interceptionAnnotation: oneOf("REDIRECT", "TPROXY", "NONE"),
		statusPortAnnotation:   portOrZero,
		delayAnnotation:        number, periodAnnotation: number, failuresAnnotation: number,
		includeRangesAnnotation: starOr(ranges), excludeRangesAnnotation: ranges,
		includeInAnnotation: starOr(ports), excludeInAnnotation: ports,
		includeOutAnnotation: starOr(ports), excludeOutAnnotation: ports,
		interfacesAnnotation: interfaces, kubevirtAnnotation: interfaces, rerouteAnnotation: interfaces,
		mergeAnnotation: truth, targetsAnnotation: func(s string) string { _, mistake := scrape.ParseTargets(s); return mistake },
		cpuAnnotation: quantity, cpuLimitAnnotation: quantity, memoryAnnotation: quantity, memoryLimitAnnotation: quantity,
	}
}

func oneOf(words ...string) func(string) string {
	return func(s string) string {
		if slices.Contains(words, s) {
			return ""
		}
		return "write " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	}
}

func portOrZero(s string) string {
	if _, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16); err != nil {
		return "write the number of a port, or 0 for none"
	}
	return ""
}

func number(s string) string {
	if n, err := strconv.ParseUint(s, 10, 32); err != nil || n > 1<<31-1 {
		return "write a whole number without a unit"
	}
	return ""
}

func truth(s string) string {
	if _, err := strconv.ParseBool(s); err != nil {
		return "write true or false"
	}
	return ""
}

func quantity(s string) string {
	if q, err := resource.ParseQuantity(s); err != nil || q.Sign() < 0 {
		return "write a Kubernetes quantity, such as 100m for CPU or 128Mi for memory"
	}
	return ""
}

// ranges checks a list of address ranges. Blanks are refused, as by Istio: a list that one of the two accepts is valid for both.
func ranges(s string) string {
	if s == "" {
		return ""
	}
	for one := range strings.SplitSeq(s, ",") {
		if _, err := netip.ParsePrefix(one); err != nil {
			return quote(one) + " is no range of addresses such as 10.0.0.0/8; separate several by commas, without blanks"
		}
	}
	return ""
}

// ports checks a list of ports, which may have blanks.
func ports(s string) string {
	if strings.TrimSpace(s) == "" {
		return ""
	}
	for one := range strings.SplitSeq(s, ",") {
		if _, err := strconv.ParseUint(strings.TrimSpace(one), 10, 16); err != nil {
			return quote(one) + " is not the number of a port; separate several by commas"
		}
	}
	return ""
}

// interfaces checks names of network interfaces by the rules of Linux.
func interfaces(s string) string {
	for _, one := range items(s) {
		bad := func(r rune) bool { return r == '/' || unicode.IsSpace(r) || unicode.IsControl(r) }
		if len(one) > 15 || one == "." || one == ".." || strings.ContainsFunc(one, bad) {
			return quote(one) + " is no name of a network interface: 15 characters at most, without blanks and slashes"
		}
	}
	return ""
}

// items splits a list with commas.
func items(s string) (list []string) {
	for one := range strings.SplitSeq(s, ",") {
		if one = strings.TrimSpace(one); one != "" {
			list = append(list, one)
		}
	}
	return list
}

// isTrue reports whether a value is the word true.
func isTrue(s string) bool { return s == "true" }

// annotated returns an annotation of the pod, or other if it is absent.
func annotated(pod *corev1.Pod, name string, other Text) string {
	if v, ok := pod.Annotations[name]; ok {
		return v
	}
	return string(other)
}

// numbered returns an annotation or a value as a number. checkAnnotations has checked the annotation.
func numbered(pod *corev1.Pod, name string, other Text) int32 {
	n, _ := strconv.ParseInt(strings.TrimSpace(cmp.Or(annotated(pod, name, other), "0")), 10, 32)
	return int32(n)
}
