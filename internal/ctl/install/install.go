package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Plan describes an installation.
type Plan struct {
	Namespace string
	// Chart is one of the charts except Definitions, which belong to ControlPlane.
	Chart string
	// Gateway is the name of a gateway, for the chart Gateway only.
	Gateway string
	// Version is the version of the program; Image is the version of the images, if the values name none.
	Version, Image string
	// Values are the values of the user.
	Values map[string]any
	// SkipDefinitions leaves out the definitions of Istio's kinds.
	SkipDefinitions bool
	// Wait waits until the pods of the installation are available. The webhooks of a control plane are made after that.
	Wait bool
}

// Name returns the name of the installation that the plan describes.
func (p Plan) Name() Name {
	switch p.Chart {
	case ControlPlane:
		return Name{p.Chart, revisionOf(p.Values)}
	case Gateway:
		return Name{p.Chart, p.Gateway}
	}
	return Name{Chart: p.Chart}
}

// Objects returns the objects to apply, and warnings about the values.
func (p Plan) Objects() (objects []*unstructured.Unstructured, warnings []string, err error) {
	if warnings, err = ineffective(p.Chart, p.Values); err != nil {
		return nil, nil, err
	}
	release := Release{Name: p.Gateway, Namespace: p.Namespace, Version: p.Image}
	if p.Chart == ControlPlane {
		release.Name = strings.TrimSuffix("istiod-"+p.Name().Release, "-")
	}
	if objects, err = Render(p.Chart, release, p.Values); err != nil {
		return nil, nil, err
	}
	if p.Chart == ControlPlane {
		more, err := p.complete(&objects, release)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, more...)
	}
	slices.SortFunc(objects, inOrder)
	return objects, warnings, nil
}

// complete checks the settings of a control plane, and adds its namespace and the definitions of Istio's kinds. The objects of the other charts are
// without a namespace: kubectl delete with the output of manifest must not delete a namespace with other objects in it.
func (p Plan) complete(objects *[]*unstructured.Unstructured, release Release) (warnings []string, err error) {
	*objects = append(*objects, namespaceObject(p.Namespace))
	if warnings, err = checkSettings(*objects); err != nil || p.SkipDefinitions {
		return warnings, err
	}
	definitions, err := Render(Definitions, release, nil)
	*objects = append(*objects, definitions...)
	return warnings, err
}

func namespaceObject(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	o.SetName(name)
	o.SetLabels(map[string]string{managedBy: manager})
	return o
}

// Install makes the objects of a plan on the cluster, or changes the objects of an installation. It may be called again at any time.
func (c *Cluster) Install(ctx context.Context, p Plan, objects []*unstructured.Unstructured) error {
	record, err := c.Installed(ctx, p.Namespace, p.Name())
	if err != nil {
		return err
	}
	if record == nil {
		record = &Record{}
	}
	if objects, err = c.owned(ctx, objects); err != nil {
		return err
	}
	if p.Chart == ControlPlane {
		if err := c.yield(ctx, p.Name().Release, objects); err != nil {
			return err
		}
	}
	if err := c.namespace(ctx, p.Namespace); err != nil {
		return err
	}
	former := record.Objects
	record.Version, record.Values, record.Objects = p.Version, p.Values, joined(former, objects)
	if err := c.keep(ctx, p.Namespace, p.Name(), record); err != nil {
		return err
	}
	for _, r := range former {
		if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return refer(o) == r }) {
			c.Say(fmt.Sprintf("%v is no part of the installation any more; it stays until uninstall, or until you delete it", r), true)
		}
	}
	return c.applyAll(ctx, p, objects)
}

// applyAll writes objects in their order. Before the webhooks it waits until the control plane can answer them.
func (c *Cluster) applyAll(ctx context.Context, p Plan, objects []*unstructured.Unstructured) error {
	waited := !p.Wait
	definitions := 0
	for n, o := range objects {
		if isWebhook(o.GetKind()) && !waited {
			if err := c.available(ctx, objects); err != nil {
				return err
			}
			waited = true
		}
		if err := c.apply(ctx, o); err != nil {
			return err
		}
		if o.GetKind() != "CustomResourceDefinition" {
			c.Say(fmt.Sprintf("%v: applied", refer(o)), true)
			continue
		}
		definitions++
		if n+1 < len(objects) && objects[n+1].GetKind() == o.GetKind() {
			c.Say(fmt.Sprintf("%v: applied", refer(o)), false)
			continue
		}
		if err := c.established(ctx, objects); err != nil {
			return err
		}
		c.Say(fmt.Sprintf("%d definitions of kinds: applied and established", definitions), true)
	}
	switch {
	case !waited:
		return c.available(ctx, objects)
	case p.Wait:
		return c.rooted(ctx, objects)
	}
	return nil
}

// rooting is how long the control plane may take to write its roots into new webhooks. In its first minute it looks for them every second, and later
// every ten seconds.
const rooting = 30 * time.Second

// rooted waits until API servers can check who answers the webhooks. Pods of the mesh are refused until then, so a control plane that writes no roots is
// worth a line, but the installation is complete.
func (c *Cluster) rooted(ctx context.Context, objects []*unstructured.Unstructured) error {
	limited, cancel := context.WithTimeout(ctx, rooting)
	defer cancel()
	for _, o := range objects {
		if !isWebhook(o.GetKind()) {
			continue
		}
		r := refer(o)
		err := c.until(limited, "the roots of "+r.String(), func() (bool, string, error) {
			is, err := c.get(limited, r)
			if err != nil || is == nil {
				return false, "it was deleted", err
			}
			return hasRoots(is), "the control plane has not written them yet", nil
		})
		switch {
		case ctx.Err() != nil:
			return err
		case limited.Err() != nil:
			c.Say(r.String()+" has no roots yet, and API servers cannot call it: see the log of the control plane, and pilotctl check", true)
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// hasRoots reports whether all webhooks of a configuration have a caBundle.
func hasRoots(o *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, one := range list {
		m, _ := one.(map[string]any)
		if bundle, _, _ := unstructured.NestedString(m, "clientConfig", "caBundle"); bundle == "" {
			return false
		}
	}
	return true
}

// namespace makes the namespace of the control plane, if there is none. An existing one stays as it is: it has another owner.
func (c *Cluster) namespace(ctx context.Context, name string) error {
	o := namespaceObject(name)
	_, err := c.at(refer(o)).Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("making the namespace %s: %w", name, err)
	}
	c.Say("Namespace "+name+": made", true)
	return nil
}

// owned returns the objects that may be applied. An object of the same name from another tool is an error. Namespaces and definitions of kinds
// are exceptions: others may use them too, and they stay as they are.
func (c *Cluster) owned(ctx context.Context, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var own []*unstructured.Unstructured
	var taken []string
	kept := 0
	for _, o := range objects {
		if o.GetKind() == "Namespace" {
			continue // made apart from the others, and only if there is none
		}
		is, err := c.get(ctx, refer(o))
		switch {
		case err != nil:
			return nil, err
		case is == nil || ours(is):
			own = append(own, o)
		case o.GetKind() == "CustomResourceDefinition":
			kept++
		default:
			by := is.GetLabels()[managedBy]
			if by == "" {
				by = "another tool"
			}
			taken = append(taken, fmt.Sprintf("%v (made by %s)", refer(o), by))
		}
	}
	if len(taken) > 0 {
		return nil, fmt.Errorf("nothing is installed, because other installations have objects of the same names: %s; install beside them with --revision NAME, "+
			"or another --name of a gateway, or remove them with the tool that has made them (helm uninstall, istioctl uninstall)", strings.Join(taken, ", "))
	}
	if kept > 0 {
		c.Say(fmt.Sprintf("%d definitions of kinds exist already and stay as they are (pilotctl check says whether their versions suit)", kept), true)
	}
	return own, nil
}

// established waits until the API server serves all defined kinds.
func (c *Cluster) established(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := c.until(ctx, fmt.Sprintf("the definition %s", o.GetName()), func() (bool, string, error) {
			is, err := c.get(ctx, refer(o))
			if err != nil || is == nil {
				return false, "it was deleted", err
			}
			return condition(is, "Established") == "True", "the API server does not serve it yet", nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// condition returns the status of a condition of an object.
func condition(o *unstructured.Unstructured, name string) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, one := range list {
		if m, ok := one.(map[string]any); ok && m["type"] == name {
			status, _ := m["status"].(string)
			return status
		}
	}
	return ""
}

// available waits until the present version of each Deployment and DaemonSet is available.
func (c *Cluster) available(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}
		r := refer(o)
		err := c.until(ctx, r.String(), func() (bool, string, error) {
			is, err := c.get(ctx, r)
			if err != nil || is == nil {
				return false, "it was deleted", err
			}
			ok, state := rolledOut(is)
			if !ok {
				state += c.troubles(ctx, is)
			}
			return ok, state, nil
		})
		if err != nil {
			return err
		}
		c.Say(r.String()+": available", true)
	}
	return nil
}

// rolledOut reports whether all pods of a Deployment or a DaemonSet are of its present version, and available.
func rolledOut(o *unstructured.Unstructured) (ok bool, state string) {
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, fields...)
		return n
	}
	if o.GetKind() == "DaemonSet" {
		want, updated, available := number("status", "desiredNumberScheduled"), number("status", "updatedNumberScheduled"), number("status", "numberAvailable")
		ok = number("status", "observedGeneration") >= o.GetGeneration() && updated >= want && available >= want
		return ok, fmt.Sprintf("it is available on %d of %d nodes, on %d in this version", available, want, updated)
	}
	want, updated, available := number("spec", "replicas"), number("status", "updatedReplicas"), number("status", "availableReplicas")
	ok = number("status", "observedGeneration") >= o.GetGeneration() && updated >= want && available >= want && number("status", "replicas") == updated
	return ok, fmt.Sprintf("%d of %d replicas are available, %d of this version", available, want, updated)
}

// troubles returns why pods of a Deployment or a DaemonSet do not run, for people who wait.
func (c *Cluster) troubles(ctx context.Context, o *unstructured.Unstructured) string {
	selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels")
	pods, err := c.at(Reference{"v1", "Pod", o.GetNamespace(), ""}).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector})})
	if err != nil {
		return "" // it only adds to a message
	}
	var found []string
	for _, p := range pods.Items {
		statuses, _, _ := unstructured.NestedSlice(p.Object, "status", "containerStatuses")
		for _, s := range statuses {
			m, _ := s.(map[string]any)
			reason, _, _ := unstructured.NestedString(m, "state", "waiting", "reason")
			message, _, _ := unstructured.NestedString(m, "state", "waiting", "message")
			if reason != "" && reason != "ContainerCreating" {
				found = append(found, strings.TrimSpace(p.GetName()+" "+reason+" "+message))
			}
		}
		if len(statuses) == 0 && condition(&p, "PodScheduled") == "False" {
			found = append(found, p.GetName()+" has no node yet")
		}
	}
	if len(found) == 0 {
		return ""
	}
	return " (" + strings.Join(found, "; ") + ")"
}
