package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/status"
)

// The limit of requests that write statuses. They have a limit of their own, so that they delay no watch.
const (
	statusQPS   = 20
	statusBurst = 40
)

// manager is the name under which the API server notes who wrote a field.
const manager = "pilot-discovery"

// Statuses writes the statuses of objects of Istio's kinds.
type Statuses struct {
	client dynamic.Interface
	kinds  map[string]api.Kind
}

// NewStatuses returns a writer to an API server. It sends no request.
func NewStatuses(config *rest.Config) (*Statuses, error) {
	own := rest.AddUserAgent(rest.CopyConfig(config), "status")
	own.QPS, own.Burst = statusQPS, statusBurst
	own.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("a client for statuses: %w", err)
	}
	s := &Statuses{client: client, kinds: map[string]api.Kind{}}
	for _, k := range api.Kinds() {
		s.kinds[k.Name] = k
	}
	return s, nil
}

// Write implements status.Target.
func (s *Statuses) Write(ctx context.Context, k api.Key, generation int64, want status.Status) error {
	_, err := s.change(ctx, k, func(u *unstructured.Unstructured) (bool, error) {
		return u.GetGeneration() == generation && merge(u, generation, want, time.Now()), nil
	})
	return err
}

// change edits the status of an object as the API server has it, so a status that is right already costs one request. edit reports whether there is
// something to write. known is true if the object then has the status that edit wants. An object that is gone is no error. The error is a conflict if the
// object has changed since it was read.
func (s *Statuses) change(ctx context.Context, k api.Key, edit func(*unstructured.Unstructured) (write bool, err error)) (known bool, err error) {
	kind, ok := s.kinds[k.Kind]
	if !ok {
		return false, fmt.Errorf("objects of kind %s have no status", k.Kind)
	}
	for _, at := range s.versions(kind, k.Namespace) {
		u, err := at.Get(ctx, k.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // the object is gone, or this version is not served
		}
		if err != nil {
			return false, fmt.Errorf("read %s: %w", k, err)
		}
		write, err := edit(u)
		if err != nil {
			return false, fmt.Errorf("the status of %s: %w", k, err)
		}
		if !write {
			return true, nil
		}
		_, err = at.UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: manager})
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsNotFound(err):
			return false, nil
		case apierrors.IsForbidden(err):
			return false, fmt.Errorf("write the status of %s: %w; add the rule {apiGroups: [%s], resources: [%s/status], verbs: [update]} to the ClusterRole of the control plane",
				k, err, kind.Group(), kind.Plural())
		}
		return false, fmt.Errorf("write the status of %s: %w", k, err)
	}
	return false, nil
}

// unlessConflict returns an error unless it is a conflict, for callers that decide again.
func unlessConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// versions returns the resources of a kind in a namespace, one for each version that the API server may serve.
func (s *Statuses) versions(kind api.Kind, namespace string) (list []dynamic.ResourceInterface) {
	for _, version := range kind.Versions() {
		at := schema.GroupVersionResource{Group: kind.Group(), Version: version, Resource: kind.Plural()}
		list = append(list, s.client.Resource(at).Namespace(namespace))
	}
	return list
}

// merge puts a status into an object. It reports whether anything changed.
func merge(u *unstructured.Unstructured, generation int64, want status.Status, now time.Time) bool {
	old, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	oldMessages, _, _ := unstructured.NestedSlice(u.Object, "status", "validationMessages")
	conditions, changed := mergeConditions(old, generation, want.Conditions, now)
	if !changed && sameMessages(oldMessages, want.Messages) {
		return false
	}
	if u.Object["status"] == nil {
		u.Object["status"] = map[string]any{}
	}
	to := u.Object["status"].(map[string]any)
	to["conditions"], to["observedGeneration"] = conditions, generation
	delete(to, "validationMessages")
	if len(want.Messages) > 0 {
		to["validationMessages"] = messages(want.Messages)
	}
	return true
}

// mergeConditions returns the conditions of other writers unchanged, and the conditions that the control plane writes. It reports
// whether any of the latter changed.
func mergeConditions(old []any, generation int64, want []status.Condition, now time.Time) (all []any, changed bool) {
	was := map[string]map[string]any{}
	for _, one := range old {
		c, _ := one.(map[string]any)
		of, _ := c["type"].(string)
		if slices.Contains(status.Types(), of) {
			was[of] = c
		} else {
			all = append(all, one)
		}
	}
	for _, c := range want {
		is := map[string]any{
			"type": c.Type, "status": "False", "reason": c.Reason, "message": c.Message,
			"observedGeneration": generation, "lastTransitionTime": now.UTC().Format(time.RFC3339),
		}
		if c.True {
			is["status"] = "True"
		}
		before := was[c.Type]
		if before["status"] == is["status"] && before["lastTransitionTime"] != nil {
			is["lastTransitionTime"] = before["lastTransitionTime"]
		}
		for field, value := range is {
			changed = changed || before[field] != value
		}
		all = append(all, is)
	}
	return all, changed
}

func messages(list []status.Message) []any {
	all := make([]any, 0, len(list))
	for _, m := range list {
		all = append(all, map[string]any{"level": m.Level, "type": map[string]any{"name": m.Text}})
	}
	return all
}

// sameMessages reports whether validation messages are as wanted.
func sameMessages(old []any, want []status.Message) bool {
	return slices.EqualFunc(old, want, func(o any, m status.Message) bool {
		c, _ := o.(map[string]any)
		of, _ := c["type"].(map[string]any)
		return c["level"] == m.Level && of["name"] == m.Text
	})
}
