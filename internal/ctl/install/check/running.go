package check

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/ctl/install"
	"github.com/pilotmesh/pilot/internal/inject"
)

// soon is how long before its end a certificate deserves a warning: roots take long to replace.
const soon = 30 * 24 * time.Hour

// certificates checks how long the authority of the mesh is valid.
func (d *doctor) certificates(ctx context.Context) {
	const check = "certificates"
	looked := 0
	for _, name := range []string{"cacerts", "istio-ca-secret"} {
		s, err := d.core.Secrets(d.Namespace).Get(ctx, name, metav1.GetOptions{})
		if notFound(err) {
			continue
		}
		if err != nil {
			d.unable(check, err)
			return
		}
		for _, key := range []string{"ca-cert.pem", "root-cert.pem"} {
			for _, c := range parseCertificates(s.Data[key]) {
				looked++
				d.certificate(check, fmt.Sprintf("%s of the Secret %s", key, name), c.NotAfter)
			}
		}
		break // a plugged-in authority goes before the own one
	}
	if looked == 0 {
		d.add(check, OK, "", "the namespace %s has no authority yet", d.Namespace)
	}
}

func (d *doctor) certificate(check, what string, end time.Time) {
	remains := end.Sub(d.Now())
	until := end.UTC().Format(time.DateOnly)
	const remedy = "replace the authority (doc/security.md): first add the new root, then the new certificate and key"
	switch {
	case remains <= 0:
		d.add(check, Error, remedy, "%s is expired since %s", what, until)
	case remains < soon:
		d.add(check, Warning, remedy, "%s expires on %s", what, until)
	default:
		d.add(check, OK, "", "%s is valid until %s", what, until)
	}
}

// parseCertificates returns the certificates of PEM blocks, and leaves other blocks out.
func parseCertificates(text []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
}

// injection makes a pod in a namespace whose pods get a proxy, as a dry run: the API server calls the webhook.
func (d *doctor) injection(ctx context.Context) {
	const check = "injection"
	list, err := d.core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		d.unable(check, err)
		return
	}
	names, err := d.names(ctx)
	if err != nil {
		d.unable(check, err)
		return
	}
	tried, captured := false, d.plugin(ctx)
	if captured {
		d.agents(ctx)
	}
	for _, n := range list.Items {
		if !injects(names, n.Labels) {
			continue
		}
		if !captured {
			d.security(n)
		}
		if !tried {
			tried = true
			d.try(ctx, n.Name)
		}
	}
	if !tried {
		label := "istio-injection=enabled"
		if d.Revision != "" {
			label = install.RevisionLabel + "=" + d.Revision
		}
		d.add(check, OK, "", "no namespace has the label %s", label)
	}
}

// names returns the values of istio.io/rev that mean this control plane: its revision and its tags.
func (d *doctor) names(ctx context.Context) ([]string, error) {
	names := []string{cmp.Or(d.Revision, install.DefaultRevision)}
	all, err := d.hooks(ctx)
	for _, h := range all {
		if h.tag != "" && h.revision == names[0] && !slices.Contains(names, h.tag) {
			names = append(names, h.tag)
		}
		if h.tag == install.DefaultRevision && h.revision != names[0] && names[0] == install.DefaultRevision {
			return nil, err // a tag of another revision has its place
		}
	}
	return names, err
}

// injects reports whether the labels of a namespace say that its pods get a proxy from the control plane with these names.
func injects(names []string, labels map[string]string) bool {
	if word, ok := labels["istio-injection"]; ok {
		return word == "enabled" && slices.Contains(names, install.DefaultRevision)
	}
	return slices.Contains(names, labels[install.RevisionLabel])
}

// plugin reports whether a CNI plugin captures the traffic of pods, by the values of injection. Values that cannot be read say nothing.
func (d *doctor) plugin(ctx context.Context) bool {
	name := "istio-sidecar-injector"
	if d.Revision != "" && d.Revision != install.DefaultRevision {
		name += "-" + d.Revision
	}
	m, err := d.core.ConfigMaps(d.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	values, err := inject.ParseValues([]byte(m.Data["values"]))
	return err == nil && values.Pilot.CNI.Enabled
}

// agents checks whether each node has the agent of the plugin that captures the traffic of pods.
func (d *doctor) agents(ctx context.Context) {
	const check = "capture"
	list, err := d.apps.DaemonSets("").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=istio-cni-node"})
	if err != nil {
		d.unable(check, err)
		return
	}
	if len(list.Items) == 0 {
		d.add(check, Error, "install the plugin with pilotctl install --chart pilot-cni, or set cni.enabled=false",
			"pods are injected for a plugin that captures their traffic (cni.enabled), and the cluster has none: they do not start")
	}
	for _, o := range list.Items {
		name := fmt.Sprintf("DaemonSet %s/%s", o.Namespace, o.Name)
		if want, available := o.Status.DesiredNumberScheduled, o.Status.NumberAvailable; available < want {
			d.add(check, Warning, fmt.Sprintf("see kubectl describe pods -n %s -l k8s-app=istio-cni-node", o.Namespace),
				"%s is available on %d of %d nodes; injected pods of the others do not start", name, available, want)
			continue
		}
		d.add(check, OK, "", "%s captures the traffic of pods on %d nodes", name, o.Status.NumberAvailable)
	}
}

// security checks whether a namespace admits the container that captures traffic.
func (d *doctor) security(n corev1.Namespace) {
	level := n.Labels["pod-security.kubernetes.io/enforce"]
	if level == "baseline" || level == "restricted" {
		d.add("pod security", Warning, "use a plugin that captures traffic (cni.enabled), or the label pod-security.kubernetes.io/enforce=privileged",
			"the namespace %s enforces the level %s, which refuses pods whose init container has NET_ADMIN", n.Name, level)
	}
}

// try makes the pod.
func (d *doctor) try(ctx context.Context, namespace string) {
	const check = "injection"
	yes := true
	number := int64(1000)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pilotctl-check", Namespace: namespace},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "app", Image: "pilotctl-check", SecurityContext: &corev1.SecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &number, AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}},
		},
	}
	made, err := d.core.Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err != nil && strings.Contains(err.Error(), "failed calling webhook"):
		d.add(check, Error, "let the API server reach port 15017 of the control plane's pods (firewall, NetworkPolicy), and see the log of the control plane",
			"the API server cannot call the webhook for a pod of %s: %v", namespace, err)
	case err != nil:
		d.add(check, Error, "correct that; pilotctl explain injection says more", "a pod of %s is refused: %v", namespace, err)
	case !slices.ContainsFunc(slices.Concat(made.Spec.InitContainers, made.Spec.Containers), func(c corev1.Container) bool { return c.Name == "istio-proxy" }):
		d.add(check, Error, "pilotctl explain injection says which rule decides; is the webhook installed (pilotctl install)?", "a pod of %s gets no proxy", namespace)
	default:
		d.add(check, OK, "", "a pod of %s gets a proxy", namespace)
	}
}
