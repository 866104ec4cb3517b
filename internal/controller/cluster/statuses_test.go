package cluster

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/internal/controller/status"
)

var (
	accepted = status.Condition{Type: status.Accepted, Reason: "Accepted", Message: "fine", True: true}
	refused  = status.Condition{Type: status.Accepted, Reason: "Refused", Message: "not fine"}
	first    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// condition returns a field of a condition of an object.
func condition(u *unstructured.Unstructured, of, field string) any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range list {
		if c := one.(map[string]any); c["type"] == of {
			return c[field]
		}
	}
	return nil
}

// TestMerge: a status keeps the conditions of other writers, an equal status is no change, and a condition has the time of its
// last transition.
func TestMerge(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"addresses": []any{map[string]any{"value": "240.240.0.1"}},
		"conditions": []any{
			map[string]any{"type": "Theirs", "status": "True"}, map[string]any{"type": status.Live, "status": "True", "reason": "old"},
		},
	}}}
	want := status.Status{Conditions: []status.Condition{accepted}, Messages: []status.Message{{Level: "WARNING", Text: "odd"}}}
	if !merge(u, 1, want, first) {
		t.Fatal("a new status is no change")
	}
	if condition(u, "Theirs", "status") != "True" || condition(u, status.Live, "status") != nil {
		t.Error("conditions of others stay, and those of the control plane that it no longer has go")
	}
	if a, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses"); len(a) != 1 {
		t.Error("the addresses are lost")
	}
	if merge(u, 1, want, first.Add(time.Hour)) {
		t.Error("the same status again is a change")
	}
	if !merge(u, 2, want, first.Add(time.Hour)) || condition(u, status.Accepted, "lastTransitionTime") != "2026-01-02T03:04:05Z" {
		t.Error("another generation is a change, and no transition")
	}
	if !merge(u, 2, status.Status{Conditions: []status.Condition{refused}}, first.Add(time.Hour)) ||
		condition(u, status.Accepted, "lastTransitionTime") != "2026-01-02T04:04:05Z" {
		t.Error("a transition has its time")
	}
	if m, _, _ := unstructured.NestedSlice(u.Object, "status", "validationMessages"); len(m) > 0 {
		t.Error("messages that are over stay")
	}
}
