package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/entries"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/registration"
)

// The limit of requests about the entries of proxies. Many proxies connect at once when a replica ends.
const (
	entryQPS   = 50
	entryBurst = 100
)

// healthCondition is the type of the condition with the health of a workload.
const healthCondition = "Healthy"

// Entries writes the WorkloadEntries of proxies.
type Entries struct{ client dynamic.Interface }

// NewEntries returns a writer to an API server. It sends no request.
func NewEntries(config *rest.Config) (*Entries, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "registration")
	own.QPS, own.Burst = entryQPS, entryBurst
	own.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("a client for WorkloadEntries: %w", err)
	}
	return &Entries{client}, nil
}

// Step implements entries.Target.
func (e *Entries) Step(ctx context.Context, k api.Key, decide func(entries.Live) entries.Step) error {
	at, version, u, err := e.read(ctx, api.KindWorkloadEntry, k)
	if err != nil {
		return err
	}
	step := decide(liveOf(u))
	switch step.Action {
	case entries.Nothing, entries.Refuse:
		return nil
	case entries.Create:
		return e.create(ctx, at, version, k, step)
	case entries.Adopt, entries.Disconnect:
		u.SetAnnotations(annotate(u.GetAnnotations(), step.Registered))
		_, err = at.Update(ctx, u, metav1.UpdateOptions{FieldManager: manager})
		return explainEntry("update", "workloadentries", err)
	case entries.Delete:
		uid, seen := u.GetUID(), u.GetResourceVersion()
		err = at.Delete(ctx, k.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &seen}})
		return explainEntry("delete", "workloadentries", err)
	case entries.SetHealth:
		if err := setHealth(u, step.Health, time.Now()); err != nil {
			return fmt.Errorf("the status of %s: %w", k, err)
		}
		_, err = at.UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: manager})
		return explainEntry("update", "workloadentries/status", err)
	}
	return fmt.Errorf("the step %q is not known", step.Action)
}

// read reads an object; nil if it does not exist. It also returns where objects of its kind are, in the version that is served.
func (e *Entries) read(ctx context.Context, of string, k api.Key) (at dynamic.ResourceInterface, version string, u *unstructured.Unstructured, err error) {
	kind, ok := api.FindKind(of)
	if !ok {
		return nil, "", nil, fmt.Errorf("there is no kind %s", of)
	}
	for _, version = range kind.Versions() {
		at = e.client.Resource(schema.GroupVersionResource{Group: kind.Group(), Version: version, Resource: kind.Plural()}).Namespace(k.Namespace)
		u, err = at.Get(ctx, k.Name, metav1.GetOptions{})
		if err == nil {
			return at, version, u, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, "", nil, explainEntry("get", kind.Plural(), err)
		}
		if !apierrors.IsUnexpectedServerError(err) { // which it is if this version is not served
			return at, version, nil, nil
		}
	}
	return nil, "", nil, fmt.Errorf("the API server does not serve %s; install Istio's definitions", kind.Plural())
}

// liveOf returns the registration in an entry.
func liveOf(u *unstructured.Unstructured) entries.Live {
	if u == nil {
		return entries.Live{}
	}
	health := connected.HealthUnknown
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range list {
		c, _ := one.(map[string]any)
		switch is, _ := c["status"].(string); {
		case c["type"] != healthCondition:
		case strings.EqualFold(is, "True"):
			health = connected.Healthy
		default:
			health = connected.Unhealthy
		}
	}
	return entries.Live{Exists: true, Registered: state.RegisteredBy(u.GetAnnotations(), health)}
}

// create makes an entry. The API server deletes it with its WorkloadGroup.
func (e *Entries) create(ctx context.Context, at dynamic.ResourceInterface, version string, k api.Key, step entries.Step) error {
	_, groupVersion, group, err := e.read(ctx, api.KindWorkloadGroup, step.Entry.Group)
	if err != nil {
		return err
	}
	if group == nil {
		return entries.ErrChanged // it was deleted just now
	}
	u, err := entryObject(k, version, step.Entry)
	if err != nil {
		return err
	}
	u.SetAnnotations(annotate(step.Entry.Annotations, step.Registered))
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: group.GroupVersionKind().Group + "/" + groupVersion, Kind: api.KindWorkloadGroup, Name: group.GetName(), UID: group.GetUID(),
	}})
	_, err = at.Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
	return explainEntry("create", "workloadentries", err)
}

// entryObject returns an entry as the API server reads it.
func entryObject(k api.Key, version string, entry *registration.Entry) (*unstructured.Unstructured, error) {
	kind, _ := api.FindKind(api.KindWorkloadEntry)
	text, err := entry.Spec.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("the specification of %s: %w", k, err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, fmt.Errorf("the specification of %s: %w", k, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group(), Version: version, Kind: kind.Name})
	u.SetNamespace(k.Namespace)
	u.SetName(k.Name)
	u.SetLabels(entry.Labels)
	return u, nil
}

// annotate returns annotations with the registration of an entry.
func annotate(annotations map[string]string, r state.Registered) map[string]string {
	out := map[string]string{}
	for key, value := range annotations {
		out[key] = value
	}
	out[api.RegisteredBy], out[api.Controller] = r.Group, r.Controller
	for key, at := range map[string]time.Time{api.ConnectedAt: r.Connected, api.DisconnectedAt: r.Disconnected} {
		delete(out, key)
		if !at.IsZero() {
			out[key] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return out
}

// setHealth writes the health of a workload to the status of its entry. Other conditions stay.
func setHealth(u *unstructured.Unstructured, health connected.Health, now time.Time) error {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	is := map[string]any{"type": healthCondition, "status": "True", "reason": "Reported", "lastProbeTime": now.UTC().Format(time.RFC3339)}
	if health.State != connected.Healthy {
		is["status"], is["message"] = "False", health.Message
	}
	is["lastTransitionTime"] = is["lastProbeTime"]
	var conditions []any
	for _, one := range list {
		if c, _ := one.(map[string]any); c["type"] != healthCondition {
			conditions = append(conditions, one)
		}
	}
	return unstructured.SetNestedSlice(u.Object, append(conditions, is), "status", "conditions")
}

// explainEntry adds the remedy to an error of reading or writing an entry. If the entry changed in between, it wraps entries.ErrChanged.
func explainEntry(verb, resource string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", entries.ErrChanged, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; add the rule {apiGroups: [networking.istio.io], resources: [%s], verbs: [%s]} to the ClusterRole of the control plane", err, resource, verb)
	}
	return fmt.Errorf("%s %s: %w", verb, resource, err)
}
