package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	authorization "k8s.io/api/authorization/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pilotmesh/pilot/internal/ctl/install"
)

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

func notFound(err error) bool { return apierrors.IsNotFound(err) }

// served returns the versions that a definition of a kind serves.
func served(o *unstructured.Unstructured) (names []string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, one := range list {
		m, _ := one.(map[string]any)
		name, _ := m["name"].(string)
		if on, _ := m["served"].(bool); on {
			names = append(names, name)
		}
	}
	return names
}

// permissions checks whether the caller may install.
func (d *doctor) permissions(ctx context.Context) {
	const check = "permissions"
	var lacks []string
	for _, one := range []authorization.ResourceAttributes{
		{Resource: "namespaces"}, {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}, {Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
		{Namespace: d.Namespace, Group: "rbac.authorization.k8s.io", Resource: "roles"}, {Namespace: d.Namespace, Group: "apps", Resource: "deployments"},
		{Namespace: d.Namespace, Resource: "services"}, {Namespace: d.Namespace, Resource: "secrets"}, {Namespace: d.Namespace, Resource: "configmaps"},
		{Namespace: d.Namespace, Resource: "serviceaccounts"}, {Namespace: d.Namespace, Group: "policy", Resource: "poddisruptionbudgets"},
		{Namespace: d.Namespace, Group: "autoscaling", Resource: "horizontalpodautoscalers"},
	} {
		for _, verb := range []string{"create", "patch", "delete"} {
			one.Verb = verb
			review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &one}}
			answer, err := d.access.Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				d.unable(check, err)
				return
			}
			if !answer.Status.Allowed {
				lacks = append(lacks, verb+" "+one.Resource)
			}
		}
	}
	if len(lacks) > 0 {
		d.add(check, Error, "use an account with the ClusterRole cluster-admin to install, upgrade and uninstall", "your account may not %s", strings.Join(lacks, ", "))
		return
	}
	d.add(check, OK, "", "your account may install, upgrade and uninstall")
}

// installation checks the installed control plane.
func (d *doctor) installation(ctx context.Context) {
	const check = "installation"
	record, err := d.cluster.Installed(ctx, d.Namespace, install.Name{Chart: install.ControlPlane, Release: d.Revision})
	if err != nil {
		d.unable(check, err)
		return
	}
	if d.record = record; record == nil {
		d.add(check, OK, "", "pilotctl has installed nothing in the namespace %s", d.Namespace)
		return
	}
	if record.Version != d.Version {
		d.add(check, Warning, "call pilotctl upgrade", "version %s is installed, and this program is %s", record.Version, d.Version)
	}
	for _, r := range record.Objects {
		if r.Kind != "Deployment" {
			continue
		}
		o, err := d.apps.Deployments(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		switch {
		case notFound(err):
			d.add(check, Error, "call pilotctl install, which completes the installation", "%v does not exist", r)
		case err != nil:
			d.unable(check, err)
		case o.Status.AvailableReplicas == 0:
			d.add(check, Error, fmt.Sprintf("see kubectl describe pods -n %s -l app=istiod", r.Namespace), "%v has no available replica", r)
		default:
			d.add(check, OK, "", "%v has %d available replicas", r, o.Status.AvailableReplicas)
		}
	}
}

// controlPlanes lists the control planes of the cluster.
func (d *doctor) controlPlanes(ctx context.Context) {
	const check = "control planes"
	list, err := d.apps.Deployments("").List(ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	if err != nil {
		d.unable(check, err)
		return
	}
	byRevision := map[string][]string{}
	for _, o := range list.Items {
		revision := o.Labels["istio.io/rev"]
		if revision == "" {
			revision = "default"
		}
		image := ""
		if c := o.Spec.Template.Spec.Containers; len(c) > 0 {
			image = c[0].Image
		}
		byRevision[revision] = append(byRevision[revision], fmt.Sprintf("%s/%s (%s)", o.Namespace, o.Name, image))
	}
	wanted := d.Revision
	if wanted == "" {
		wanted = "default"
	}
	if there := byRevision[wanted]; d.record == nil && len(there) > 0 {
		d.add(check, Error, "install beside it with --revision NAME, and move namespaces to it one by one (istio.io/rev=NAME)",
			"another tool has installed the revision %s: %s", wanted, strings.Join(there, ", "))
	}
	for revision, names := range byRevision {
		if len(names) > 1 {
			d.add(check, Error, "give all but one another revision", "the revision %s has several: %s", revision, strings.Join(names, ", "))
		}
	}
	d.add(check, OK, "", "there are %d", len(list.Items))
}

// hook is a webhook of the cluster, of either kind.
type hook struct {
	name, configuration, revision string
	tag                           string // another name of the revision; empty for the webhooks of the revision itself
	client                        admission.WebhookClientConfig
	fails                         bool
	injects                       *admission.MutatingWebhook
}

// hooks returns the webhooks that call services of meshes.
func (d *doctor) hooks(ctx context.Context) (all []hook, err error) {
	mutating, err := d.hooksOf.Mutating().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range mutating.Items {
		for n := range o.Webhooks {
			w := &o.Webhooks[n]
			if strings.HasSuffix(w.Name, "sidecar-injector.istio.io") {
				all = append(all, hook{w.Name, o.Name, o.Labels[install.RevisionLabel], o.Labels[install.TagLabel], w.ClientConfig, w.FailurePolicy == nil || *w.FailurePolicy == admission.Fail, w})
			}
		}
	}
	validating, err := d.hooksOf.Validating().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range validating.Items {
		for _, w := range o.Webhooks {
			if strings.HasSuffix(w.Name, "validation.istio.io") {
				all = append(all, hook{w.Name, o.Name, o.Labels[install.RevisionLabel], o.Labels[install.TagLabel], w.ClientConfig, w.FailurePolicy == nil || *w.FailurePolicy == admission.Fail, nil})
			}
		}
	}
	return all, nil
}

// webhooks checks whether each webhook has an endpoint, and whether two inject the same pods.
func (d *doctor) webhooks(ctx context.Context) {
	const check = "webhooks"
	all, err := d.hooks(ctx)
	if err != nil {
		d.unable(check, err)
		return
	}
	bad := map[string]bool{}
	for _, h := range all {
		if h.client.Service == nil || bad[h.configuration] {
			continue
		}
		at := h.client.Service.Namespace + "/" + h.client.Service.Name
		reached, err := d.answered(ctx, h.client.Service.Namespace, h.client.Service.Name)
		level, effect := Warning, "what it would check is accepted unchecked"
		if h.fails {
			level, effect = Error, "what its selectors name cannot be created"
		}
		switch {
		case err != nil:
			d.unable(check, err)
		case !reached:
			d.add(check, level, "start the control plane, or delete the configuration", "%s calls the service %s, which has no ready endpoint: %s", h.configuration, at, effect)
		case len(h.client.CABundle) == 0:
			d.add(check, level, "the control plane writes it: see its log, and manifests/rbac.yaml for the permission", "%s has no caBundle: %s", h.configuration, effect)
		default:
			continue
		}
		bad[h.configuration] = true
	}
	for _, text := range overlaps(all) {
		d.add(check, Error, "remove the configuration that is not wanted, or give its control plane a revision", "%s", text)
		bad[text] = true
	}
	if len(bad) == 0 {
		d.add(check, OK, "", "%d webhooks of meshes have endpoints and roots", len(all))
	}
}

// answered reports whether a service has a ready endpoint.
func (d *doctor) answered(ctx context.Context, namespace, name string) (bool, error) {
	slices, err := d.endpoints.In(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return false, err
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return true, nil
			}
		}
	}
	return false, nil
}

// overlaps returns the pairs of configurations that inject the same pods: each looks at a pod of a namespace with one of the usual labels.
func overlaps(all []hook) (found []string) {
	revisions := []string{"default"}
	for _, h := range all {
		for _, name := range []string{h.revision, h.tag} {
			if name != "" && !slices.Contains(revisions, name) {
				revisions = append(revisions, name)
			}
		}
	}
	spaces := []labels.Set{{"istio-injection": "enabled"}}
	for _, r := range revisions {
		spaces = append(spaces, labels.Set{"istio.io/rev": r})
	}
	for _, space := range spaces {
		var who []string
		for _, h := range all {
			if h.injects != nil && matches(h.injects.NamespaceSelector, space) && matches(h.injects.ObjectSelector, labels.Set{"app": "web"}) && !slices.Contains(who, h.configuration) {
				who = append(who, h.configuration)
			}
		}
		if len(who) > 1 {
			found = append(found, fmt.Sprintf("pods of namespaces with the label %v are injected by several: %s", space, strings.Join(who, ", ")))
		}
	}
	return found
}

// matches reports whether a selector selects labels. One that cannot be read selects nothing.
func matches(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}
