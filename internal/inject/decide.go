package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The policies for pods that say nothing themselves.
const (
	policyEnabled  = "enabled"
	policyDisabled = "disabled"
)

// Namespace is the namespace of a pod, as far as injection depends on it.
type Namespace struct {
	Name                string
	Labels, Annotations map[string]string
}

// Decision says whether a pod is injected, and why.
type Decision struct {
	Inject bool `json:"inject"`
	// Reason is the rule that decided.
	Reason string `json:"reason"`
	// Webhook is the entry of the webhook configuration that selects the pod; empty if none does, or without a namespace.
	Webhook string `json:"webhook,omitempty"`
	// Steps are the rules in the order in which they were tried.
	Steps []Step `json:"steps"`
}

// Step is one rule and its result for a pod.
type Step struct {
	Rule   string `json:"rule"`
	Result string `json:"result"`
}

func (d *Decision) step(rule, format string, args ...any) {
	d.Steps = append(d.Steps, Step{rule, fmt.Sprintf(format, args...)})
}

func (d *Decision) end(inject bool, rule, format string, args ...any) Decision {
	d.Inject, d.Reason = inject, fmt.Sprintf(format, args...)
	d.step(rule, "%s", d.Reason)
	return *d
}

// systemNamespaces are the namespaces whose pods are never injected.
func systemNamespaces() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}
}

// Selector is an entry of the webhook configuration: the API server calls the control plane for pods that both selectors match.
type Selector struct {
	Name              string
	Namespace, Object metav1.LabelSelector
}

// webhookSelectors returns the entries of the webhook configuration of a revision; "" is the control plane without one. byDefault makes namespaces
// without labels count as enabled.
func webhookSelectors(revision string, byDefault bool) []Selector {
	is := func(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	all := func(of ...metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: of}
	}
	const in, notIn, absent = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpDoesNotExist
	const domain = ".sidecar-injector.istio.io"
	name := revision
	if name == "" {
		name = defaultRevision
	}
	unlabelled := all(is(namespaceLabel, absent), is(revisionName, absent))
	list := []Selector{
		{"rev.namespace" + domain, all(is(revisionName, in, name), is(namespaceLabel, absent)), all(is(injectName, notIn, "false"))},
		{"rev.object" + domain, unlabelled, all(is(injectName, notIn, "false"), is(revisionName, in, name))},
	}
	if revision != "" {
		return list
	}
	list = append(list,
		Selector{"namespace" + domain, all(is(namespaceLabel, in, "enabled")), all(is(injectName, notIn, "false"))},
		Selector{"object" + domain, unlabelled, all(is(injectName, in, "true"), is(revisionName, absent))})
	if byDefault {
		unlabelled.MatchExpressions = append(slices.Clone(unlabelled.MatchExpressions), is(namespaceName, notIn, systemNamespaces()...))
		list = append(list, Selector{"auto" + domain, unlabelled, all(is(injectName, absent), is(revisionName, absent))})
	}
	return list
}

// Decide says whether a pod is injected. With its namespace it says what a cluster would do; nil means that the user asks for the
// injection of a file: then only what the pod itself says counts.
func (i *Injector) Decide(pod *corev1.Pod, namespace *Namespace) Decision {
	d := Decision{}
	if namespace != nil && !i.selected(&d, pod, namespace) {
		return d.end(false, "webhooks", "no entry of the webhook configuration of revision %s selects the pod%s", i.revision(), i.hint(pod, namespace))
	}
	return i.decide(&d, pod, namespace != nil)
}

// DecideSelected says whether a pod is injected that the API server has sent, because its webhook configuration selects the pod.
func (i *Injector) DecideSelected(pod *corev1.Pod) Decision {
	return i.decide(&Decision{}, pod, true)
}

// decide tries the rules behind the webhook configuration. Selectors and policy count only for pods of a cluster.
func (i *Injector) decide(d *Decision, pod *corev1.Pod, inCluster bool) Decision {
	if pod.Spec.HostNetwork {
		return d.end(false, "host network", "the pod is in the network of its host, whose traffic must not be captured")
	}
	if slices.Contains(systemNamespaces(), pod.Namespace) {
		return d.end(false, "system namespaces", "pods of the namespace %s are never injected", pod.Namespace)
	}
	if word, where := asked(pod); word != "" {
		return d.end(word == "true", injectName, "the %s %s of the pod is %s", where, injectName, word)
	}
	d.step(injectName, "the pod says neither true nor false")
	if !inCluster {
		return d.end(true, "policy", "the pod does not decline")
	}
	for _, rule := range []struct {
		name      string
		selectors []labels.Selector
		inject    bool
	}{{"neverInjectSelector", i.never, false}, {"alwaysInjectSelector", i.always, true}} {
		for n, s := range rule.selectors {
			if !s.Empty() && s.Matches(labels.Set(pod.Labels)) {
				return d.end(rule.inject, rule.name, "sidecarInjectorWebhook.%s[%d] (%s) selects the pod", rule.name, n, s)
			}
		}
		d.step(rule.name, "does not select the pod")
	}
	policy := i.values.Global.Proxy.AutoInject
	return d.end(policy == policyEnabled, "policy", "global.proxy.autoInject is %s", policy)
}

// asked returns what the pod itself wants, true or false, and whether a label or an annotation says so. The label counts first; a value
// that is neither counts as absent.
func asked(pod *corev1.Pod) (word, where string) {
	word, where = pod.Annotations[injectName], "annotation"
	if label, ok := pod.Labels[injectName]; ok {
		word, where = label, "label"
	}
	if word != "true" && word != "false" {
		return "", where
	}
	return word, where
}

// selected reports whether an entry of the webhook configuration selects the pod.
func (i *Injector) selected(d *Decision, pod *corev1.Pod, namespace *Namespace) bool {
	for _, s := range i.selectors {
		why := mismatch("namespace", s.Namespace, namespace.Labels)
		if why == "" {
			why = mismatch("pod", s.Object, pod.Labels)
		}
		if why == "" {
			d.Webhook = s.Name
			d.step(s.Name, "selects the pod")
			return true
		}
		d.step(s.Name, "%s", why)
	}
	return false
}

// mismatch says which requirement of a selector the labels of a thing fail; empty if none.
func mismatch(thing string, s metav1.LabelSelector, set map[string]string) string {
	for _, r := range s.MatchExpressions {
		one := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
		selector, err := metav1.LabelSelectorAsSelector(&one)
		if err == nil && selector.Matches(labels.Set(set)) {
			continue
		}
		have := "has no label " + r.Key
		if v, ok := set[r.Key]; ok {
			have = fmt.Sprintf("has the label %s=%s", r.Key, v)
		}
		switch r.Operator {
		case metav1.LabelSelectorOpDoesNotExist:
			return fmt.Sprintf("the %s %s, and must not have it", thing, have)
		case metav1.LabelSelectorOpNotIn:
			return fmt.Sprintf("the %s %s", thing, have)
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpExists:
		}
		return fmt.Sprintf("the %s %s; it needs %s=%s", thing, have, r.Key, strings.Join(r.Values, " or "))
	}
	return ""
}

// hint says what would make the webhooks select a pod, or why it would get no proxy even then.
func (i *Injector) hint(pod *corev1.Pod, namespace *Namespace) string {
	if word, where := asked(pod); word == "false" {
		return fmt.Sprintf(": its %s %s is false", where, injectName)
	}
	switch {
	case pod.Spec.HostNetwork:
		return "; a pod in the network of its host, whose traffic must not be captured, gets no proxy anyway"
	case slices.Contains(systemNamespaces(), namespace.Name):
		return fmt.Sprintf("; pods of the namespace %s are never injected", namespace.Name)
	}
	enabled, rev := namespace.Labels[namespaceLabel], namespace.Labels[revisionName]
	switch {
	case enabled != "" && i.config.Revision != "":
		return fmt.Sprintf(": the label %s of the namespace goes before revisions; remove it, and label the namespace %s=%s", namespaceLabel, revisionName, i.revision())
	case enabled != "":
		return fmt.Sprintf(": the label %s of the namespace is %s; write enabled", namespaceLabel, enabled)
	case rev != "":
		return fmt.Sprintf(": the namespace has the revision %s", rev)
	case i.config.Revision != "":
		return fmt.Sprintf("; label the namespace or the pod %s=%s", revisionName, i.revision())
	}
	return fmt.Sprintf("; label the namespace %s=enabled, or the pod %s=true", namespaceLabel, injectName)
}
