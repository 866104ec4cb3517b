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
	"github.com/pilotmesh/pilot/internal/status"
)

// The limit of requests that write statuses. They have a limit of their own, so that they delay no watch.
const (
	statusQPS   = 20
	statusBurst = 40
)

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

// Write implements status.Target. It reads the object first, so a status that the object has already costs one request.
func (s *Statuses) Write(ctx context.Context, k api.Key, generation int64, want status.Status) error {
	kind, ok := s.kinds[k.Kind]
	if !ok {
		return fmt.Errorf("objects of kind %s have no status", k.Kind)
	}
	for _, version := range kind.Versions() {
		at := s.client.Resource(schema.GroupVersionResource{Group: kind.Group(), Version: version, Resource: kind.Plural()}).Namespace(k.Namespace)
		u, err := at.Get(ctx, k.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue // the object is gone, or this version is not served
		case err != nil:
			return fmt.Errorf("read %s: %w", k, err)
		case u.GetGeneration() != generation || !merge(u, generation, want, time.Now()):
			return nil
		}
		_, err = at.UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: "pilot-discovery"})
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("write the status of %s: %w; add the rule {apiGroups: [%s], resources: [%s/status], verbs: [update]} to the ClusterRole of the control plane",
				k, err, kind.Group(), kind.Plural())
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write the status of %s: %w", k, err)
		}
		return nil
	}
	return nil
}

// merge puts a status into an object. Conditions of other types stay. It reports whether anything changed.
func merge(u *unstructured.Unstructured, generation int64, want status.Status, now time.Time) bool {
	old, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	var conditions []any
	was := map[string]map[string]any{}
	for _, one := range old {
		c, _ := one.(map[string]any)
		of, _ := c["type"].(string)
		if slices.Contains(status.Types(), of) {
			was[of] = c
		} else {
			conditions = append(conditions, one)
		}
	}
	changed := false
	for _, c := range want.Conditions {
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
		conditions = append(conditions, is)
	}
	messages := make([]any, 0, len(want.Messages))
	for _, m := range want.Messages {
		messages = append(messages, map[string]any{"level": m.Level, "type": map[string]any{"name": m.Text}})
	}
	oldMessages, _, _ := unstructured.NestedSlice(u.Object, "status", "validationMessages")
	if !changed && sameMessages(oldMessages, want.Messages) {
		return false
	}
	if u.Object["status"] == nil {
		u.Object["status"] = map[string]any{}
	}
	to := u.Object["status"].(map[string]any)
	to["conditions"], to["observedGeneration"] = conditions, generation
	if len(messages) > 0 {
		to["validationMessages"] = messages
	} else {
		delete(to, "validationMessages")
	}
	return true
}

// sameMessages reports whether validation messages say what they should.
func sameMessages(old []any, want []status.Message) bool {
	return slices.EqualFunc(old, want, func(o any, m status.Message) bool {
		c, _ := o.(map[string]any)
		of, _ := c["type"].(map[string]any)
		return c["level"] == m.Level && of["name"] == m.Text
	})
}
