package install

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kinds "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Cluster is a cluster with or without a control plane.
type Cluster struct {
	client dynamic.Interface
	// Say reports progress: lines that stay, and states of waiting, which the next call replaces.
	Say func(line string, stays bool)
}

// A person waits: the usual limit of five requests a second would make an installation take half a minute.
const (
	requestsPerSecond = 100
	burst             = 200
)

// Connect returns the cluster of an API server. It sends no request.
func Connect(access *rest.Config) (*Cluster, error) {
	access = rest.AddUserAgent(rest.CopyConfig(access), manager)
	access.QPS, access.Burst = requestsPerSecond, burst
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("a client for the cluster: %w", err)
	}
	return &Cluster{client: client, Say: func(string, bool) {}}, nil
}

// Reference names an object.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// String returns KIND NAME, or KIND NAMESPACE/NAME.
func (r Reference) String() string {
	if r.Namespace != "" {
		return r.Kind + " " + r.Namespace + "/" + r.Name
	}
	return r.Kind + " " + r.Name
}

func refer(o *unstructured.Unstructured) Reference {
	return Reference{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()}
}

// at returns the client of a resource. For all kinds of the charts, the name of the resource follows from the kind.
func (c *Cluster) at(r Reference) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(kinds.FromAPIVersionAndKind(r.APIVersion, r.Kind))
	if r.Namespace == "" {
		return c.client.Resource(plural)
	}
	return c.client.Resource(plural).Namespace(r.Namespace)
}

// get returns an object, or nil if there is none.
func (c *Cluster) get(ctx context.Context, r Reference) (*unstructured.Unstructured, error) {
	o, err := c.at(r).Get(ctx, r.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %v: %w", r, err)
	}
	return o, nil
}

// ours reports whether this program has made an object.
func ours(o *unstructured.Unstructured) bool { return o.GetLabels()[managedBy] == manager }

// apply writes an object.
func (c *Cluster) apply(ctx context.Context, o *unstructured.Unstructured) error {
	r := refer(o)
	_, err := c.at(r).Apply(ctx, r.Name, o, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("writing %v: %w", r, err)
	}
	return nil
}

// remove deletes an object that this program has made, and waits until it is gone. It reports whether there was one.
func (c *Cluster) remove(ctx context.Context, r Reference) (bool, error) {
	o, err := c.get(ctx, r)
	if err != nil || o == nil {
		return false, err
	}
	if !ours(o) {
		c.Say(fmt.Sprintf("%v stays: it has not the label %s=%s any more", r, managedBy, manager), true)
		return false, nil
	}
	return true, c.drop(ctx, r)
}

// drop deletes an object and what belongs to it, and waits until both are gone.
func (c *Cluster) drop(ctx context.Context, r Reference) error {
	propagation := metav1.DeletePropagationBackground
	if r.Kind == "Deployment" {
		propagation = metav1.DeletePropagationForeground // its pods write until they end
	}
	err := c.at(r).Delete(ctx, r.Name, metav1.DeleteOptions{PropagationPolicy: &propagation})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %v: %w", r, err)
	}
	return c.until(ctx, fmt.Sprintf("the end of %v", r), func() (bool, string, error) {
		o, err := c.get(ctx, r)
		return o == nil, "", err
	})
}

// lookAgain is the time between two looks at an object while waiting.
const lookAgain = 250 * time.Millisecond

// until waits for a condition. done also returns the present state, for the error.
func (c *Cluster) until(ctx context.Context, what string, done func() (ok bool, state string, err error)) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	var last string
	for {
		ok, state, err := done()
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case ok:
			return nil
		case err == nil && state != "": // a look that the end of the time has cut off says nothing
			last = ": " + state
		}
		c.Say("waiting for "+what+last, false)
		select {
		case <-again.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("waiting for %s took too long%s; correct that and call the command again, it continues from here (--timeout sets how long it waits)", what, last)
			}
			return fmt.Errorf("waiting for %s was interrupted; call the command again, it continues from here", what)
		}
	}
}

// Record describes an installation: the content of its Secret.
type Record struct {
	// Version is the version of the program that wrote it.
	Version string
	// Values are the values of the user.
	Values map[string]any
	// Objects are all objects that were made.
	Objects []Reference
}

// Name identifies an installation in its namespace.
type Name struct {
	// Chart is one of the charts except Definitions.
	Chart string
	// Release is the revision of a control plane, empty for the default one, or the name of a gateway. A plugin has none.
	Release string
}

// record is the Secret of an installation. A revision or a gateway with any name cannot have the Secret of an installation of another chart.
func (n Name) record(namespace string) Reference {
	name := "pilot-installation"
	if n.Chart != ControlPlane {
		name = n.Chart + ".installation"
	}
	if n.Release != "" {
		name += "-" + n.Release
	}
	return Reference{"v1", "Secret", namespace, name}
}

// Installed returns the record of an installation, or nil if there is none.
func (c *Cluster) Installed(ctx context.Context, namespace string, name Name) (*Record, error) {
	r := name.record(namespace)
	o, err := c.get(ctx, r)
	if err != nil || o == nil {
		return nil, err
	}
	record := &Record{}
	for key, into := range map[string]any{"version": &record.Version, "values": &record.Values, "objects": &record.Objects} {
		coded, _, _ := unstructured.NestedString(o.Object, "data", key)
		text, err := base64.StdEncoding.DecodeString(coded)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			return nil, fmt.Errorf("the record of the installation, %v: %s: %w; restore the Secret, or delete it and install again", r, key, err)
		}
	}
	return record, nil
}

// keep writes the record of an installation.
func (c *Cluster) keep(ctx context.Context, namespace string, name Name, record *Record) error {
	data := map[string]any{}
	for key, value := range map[string]any{"version": record.Version, "values": record.Values, "objects": record.Objects} {
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("the record of the installation: %s: %w", key, err)
		}
		data[key] = base64.StdEncoding.EncodeToString(text)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": data}}
	o.SetNamespace(namespace)
	o.SetName(name.record(namespace).Name)
	o.SetLabels(map[string]string{managedBy: manager, "app.kubernetes.io/name": name.Chart})
	return c.apply(ctx, o)
}

// joined returns former references and the references of objects, each once.
func joined(former []Reference, objects []*unstructured.Unstructured) []Reference {
	all := slices.Clone(former)
	for _, o := range objects {
		if r := refer(o); !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Reference) int { return strings.Compare(a.String(), b.String()) })
	return all
}
