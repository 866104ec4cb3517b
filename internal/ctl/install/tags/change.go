package tags

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/internal/ctl/install"
)

// Set makes a tag, or moves it.
func Set(ctx context.Context, c *install.Cluster, change Change) error {
	objects, err := Generate(ctx, c, change)
	if err != nil {
		return err
	}
	if err := free(ctx, c, change); err != nil {
		return err
	}
	for _, o := range objects {
		if err := c.Put(ctx, o); err != nil {
			return err
		}
	}
	if change.Tag != install.DefaultRevision {
		return nil
	}
	return rest(ctx, c, true)
}

// free returns an error if the name of a tag is taken.
func free(ctx context.Context, c *install.Cluster, change Change) error {
	list, err := c.List(ctx, install.DefaultTag(), "")
	if err != nil {
		return err
	}
	for _, o := range list {
		l := o.GetLabels()
		switch {
		case l[install.TagLabel] == change.Tag:
			if !change.Overwrite && l[install.RevisionLabel] != change.Revision {
				return fmt.Errorf("the tag %s exists and points to the revision %s; move it with --overwrite", change.Tag, l[install.RevisionLabel])
			}
		case l[install.TagLabel] != "" || l[install.RevisionLabel] != change.Tag:
		case change.Tag != install.DefaultRevision:
			return fmt.Errorf("a control plane has the revision %s, with the webhooks %s; choose another tag", change.Tag, o.GetName())
		case !change.Overwrite && install.Idle(o, true):
			return fmt.Errorf("the control plane without a revision injects pods of namespaces with istio-injection=enabled, with the webhooks %s; --overwrite makes them idle until the tag is removed", o.GetName())
		}
	}
	return nil
}

// rest makes the webhooks of the control plane without a revision idle, or takes that back.
func rest(ctx context.Context, c *install.Cluster, on bool) error {
	for _, kind := range kinds() {
		list, err := c.List(ctx, kind, install.RevisionLabel+"="+install.DefaultRevision+",!"+install.TagLabel)
		if err != nil {
			return err
		}
		for _, o := range list {
			if !install.Idle(o, on) {
				continue
			}
			if err := c.Put(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes a tag. One that namespaces use is removed only if forced.
func Remove(ctx context.Context, c *install.Cluster, name string, force bool) error {
	all, err := List(ctx, c)
	if err != nil {
		return err
	}
	n := slices.IndexFunc(all, func(t Tag) bool { return t.Name == name })
	if n < 0 {
		return fmt.Errorf("there is no tag %s; pilotctl tag list shows all", name)
	}
	if in := all[n].Namespaces; len(in) > 0 && !force {
		return fmt.Errorf("the tag %s is in use by the namespaces %s, whose new pods would get no proxy; label them with another revision, or remove the tag with --skip-confirmation", name, strings.Join(in, ", "))
	}
	if name == install.DefaultRevision { // first: a pod must find one of the two
		if err := rest(ctx, c, false); err != nil {
			return err
		}
	}
	role := install.Reference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}
	binding := role
	binding.Kind = "ClusterRoleBinding"
	for _, kind := range append(kinds(), binding, role) {
		var list []*unstructured.Unstructured
		if list, err = c.List(ctx, kind, install.TagLabel+"="+name); err != nil {
			return err
		}
		for _, o := range list {
			if err := c.Drop(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}
