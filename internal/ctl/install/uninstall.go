package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/internal/api"
)

// Removal describes an uninstallation.
type Removal struct {
	Namespace string
	Name      Name
	// Definitions removes the definitions of Istio's kinds as well, and with them all objects of these kinds.
	Definitions bool
}

// Uninstall removes an installation; of a control plane, also the objects that it has written. It may be called again at any time.
func (c *Cluster) Uninstall(ctx context.Context, r Removal) error {
	record, err := c.Installed(ctx, r.Namespace, r.Name)
	if err != nil {
		return err
	}
	if record == nil {
		return c.unrecorded(ctx, r)
	}
	if r.Name.Chart == ControlPlane {
		if err := c.tagged(ctx, r, record); err != nil {
			return err
		}
	}
	removed := 0
	for _, one := range backwards(record.Objects) {
		if one.Kind == "CustomResourceDefinition" {
			continue
		}
		was, err := c.remove(ctx, one)
		if err != nil {
			return err
		}
		if was {
			removed++
			c.Say(fmt.Sprintf("%v: removed", one), true)
		}
	}
	if r.Name.Chart == ControlPlane {
		if err := c.leftovers(ctx, r.Namespace); err != nil {
			return err
		}
		if err := c.definitions(ctx, r, record.Objects); err != nil {
			return err
		}
	}
	if _, err := c.remove(ctx, r.Name.record(r.Namespace)); err != nil {
		return err
	}
	c.Say(fmt.Sprintf("%d objects of the installation: removed", removed), true)
	return c.removeNamespace(ctx, r.Namespace)
}

// unrecorded removes the namespace of an installation that was interrupted before its record was written.
func (c *Cluster) unrecorded(ctx context.Context, r Removal) error {
	o, err := c.get(ctx, refer(namespaceObject(r.Namespace)))
	if err != nil {
		return err
	}
	if o == nil || !ours(o) {
		return fmt.Errorf("there is no installation of pilotctl in the namespace %s (the Secret %s is missing there); name another --namespace, --revision or --name, "+
			"or use the tool that has installed it", r.Namespace, r.Name.record(r.Namespace).Name)
	}
	return c.removeNamespace(ctx, r.Namespace)
}

// backwards returns references in the order in which objects are removed: first the webhooks, so that no API server calls a replica that ends.
func backwards(list []Reference) []Reference {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Reference) int { return slices.Index(order, b.Kind) - slices.Index(order, a.Kind) })
	return list
}

// definitions removes the definitions of kinds, or says that they stay.
func (c *Cluster) definitions(ctx context.Context, r Removal, objects []Reference) error {
	objects = slices.DeleteFunc(slices.Clone(objects), func(one Reference) bool { return one.Kind != "CustomResourceDefinition" })
	if !r.Definitions {
		if len(objects) > 0 {
			c.Say(fmt.Sprintf("%d definitions of kinds stay, and with them the configuration of the mesh; --crds removes both", len(objects)), true)
		}
		return nil
	}
	others, err := c.others(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return fmt.Errorf("the definitions of kinds stay, because other control planes use them: %s; call uninstall without --crds", strings.Join(others, ", "))
	}
	for _, one := range objects {
		if _, err := c.remove(ctx, one); err != nil {
			return err
		}
	}
	c.Say(fmt.Sprintf("%d definitions of kinds: removed", len(objects)), true)
	return nil
}

// others returns the control planes of the cluster.
func (c *Cluster) others(ctx context.Context) (names []string, err error) {
	list, err := c.at(Reference{APIVersion: "apps/v1", Kind: "Deployment"}).List(ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	if err != nil {
		return nil, fmt.Errorf("looking for other control planes: %w", err)
	}
	for _, o := range list.Items {
		names = append(names, o.GetNamespace()+"/"+o.GetName())
	}
	return names, nil
}

// leftovers removes the objects that the control plane has written, once no control plane of the cluster uses them. They are the objects that its
// roles let it update.
func (c *Cluster) leftovers(ctx context.Context, namespace string) error {
	others, err := c.others(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		c.Say(fmt.Sprintf("objects that control planes share stay, because others are installed: %s", strings.Join(others, ", ")), true)
		return nil
	}
	own, everywhere, err := written(namespace)
	if err != nil {
		return err
	}
	places := []string{}
	all, err := c.at(Reference{APIVersion: "v1", Kind: "Namespace"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	for _, o := range all.Items {
		places = append(places, o.GetName())
	}
	for _, r := range everywhere {
		for _, place := range places {
			r.Namespace = place
			own = append(own, r)
		}
	}
	for _, r := range own {
		o, err := c.get(ctx, r)
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		if err := c.drop(ctx, r); err != nil {
			return err
		}
	}
	c.Say("objects that the control plane has written: removed", true)
	return c.entries(ctx)
}

// written returns the objects that a control plane writes itself, in its namespace and in every one. Its roles name them.
func written(namespace string) (own, everywhere []Reference, err error) {
	all := map[string]any{"taint": map[string]any{"enabled": true}} // any installation may have had this setting
	objects, err := Render(ControlPlane, Release{Namespace: namespace}, all)
	if err != nil {
		return nil, nil, err
	}
	writable := map[string]Reference{
		"configmaps": {APIVersion: "v1", Kind: "ConfigMap"}, "secrets": {APIVersion: "v1", Kind: "Secret"},
		"leases": {APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
	}
	for _, o := range objects {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, one := range rules {
			rule, _ := one.(map[string]any)
			verbs, _, _ := unstructured.NestedStringSlice(rule, "verbs")
			resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
			names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
			if !slices.Contains(verbs, "update") || len(resources) != 1 {
				continue
			}
			r, known := writable[resources[0]]
			for _, name := range names {
				r.Name = name
				switch {
				case known && o.GetKind() == "Role":
					r.Namespace = namespace
					own = append(own, r)
				case known:
					everywhere = append(everywhere, r)
				}
			}
		}
	}
	return own, everywhere, nil
}

// entries removes the WorkloadEntries that the control plane has made for proxies.
func (c *Cluster) entries(ctx context.Context) error {
	kind := Reference{APIVersion: "networking.istio.io/v1", Kind: "WorkloadEntry"}
	list, err := c.at(kind).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the kind is not defined
	}
	if err != nil {
		return fmt.Errorf("listing WorkloadEntries: %w", err)
	}
	for _, o := range list.Items {
		if o.GetAnnotations()[api.RegisteredBy] == "" {
			continue
		}
		if err := c.drop(ctx, refer(&o)); err != nil {
			return err
		}
	}
	return nil
}

// removeNamespace removes the namespace that the installation has made, unless it has other objects.
func (c *Cluster) removeNamespace(ctx context.Context, name string) error {
	r := refer(namespaceObject(name))
	o, err := c.get(ctx, r)
	if err != nil || o == nil || !ours(o) {
		return err
	}
	for _, kind := range []Reference{
		{APIVersion: "v1", Kind: "Pod"}, {APIVersion: "v1", Kind: "Service"}, {APIVersion: "v1", Kind: "Secret"}, {APIVersion: "v1", Kind: "ConfigMap"},
		{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, {APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "DaemonSet"},
		{APIVersion: "apps/v1", Kind: "StatefulSet"},
	} {
		kind.Namespace = name
		list, err := c.at(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("looking for objects in the namespace %s: %w", name, err)
		}
		for _, other := range list.Items {
			if other.GetName() == "kube-root-ca.crt" {
				continue
			}
			c.Say(fmt.Sprintf("the namespace %s stays, because %v is in it", name, refer(&other)), true)
			return nil
		}
	}
	if err := c.drop(ctx, r); err != nil {
		return err
	}
	c.Say(fmt.Sprintf("%v: removed", r), true)
	return nil
}
