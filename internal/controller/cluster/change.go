package cluster

import (
	"context"
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// attempts is how many times a change is tried that other clients make, too.
const attempts = 10

// errContended means that other clients change an object again and again.
var errContended = errors.New("other clients change it again and again")

// change edits an object as the API server has it. If there is none, edit gets empty, which has the name of the object, and change creates it. edit
// reports whether there is something to write. The API server refuses a change of an object that another client has changed; then the object is read
// and edited again.
func change[T interface {
	runtime.Object
	metav1.Object
}, L runtime.Object](ctx context.Context, at *kubeclient.Resource[T, L], name string, empty func() T, edit func(is T) (write bool, err error)) error {
	for range attempts {
		is, err := at.Get(ctx, name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			is = empty()
		} else if err != nil {
			return err
		}
		if write, err := edit(is); err != nil || !write {
			return err
		}
		if missing {
			_, err = at.Create(ctx, is, metav1.CreateOptions{FieldManager: manager})
		} else {
			_, err = at.Update(ctx, is, metav1.UpdateOptions{FieldManager: manager})
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return errContended
}

// changeMap edits a ConfigMap; see change. labels are the labels of a new one. role is the role of the control plane that needs the verbs.
func changeMap(ctx context.Context, at *kubeclient.Resource[*core.ConfigMap, *core.ConfigMapList], name string, labels map[string]string, role, verbs string, edit func(is *core.ConfigMap) (write bool)) error {
	err := change(ctx, at, name, func() *core.ConfigMap {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}, func(is *core.ConfigMap) (bool, error) { return edit(is), nil })
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; add the rule {apiGroups: [\"\"], resources: [configmaps], resourceNames: [%s], verbs: [%s]} and one to create configmaps to the %s of the control plane", err, name, verbs, role)
	}
	return fmt.Errorf("ConfigMap %s: %w", name, err)
}

// setText makes a ConfigMap have a text under a key, and reports whether it had another one.
func setText(is *core.ConfigMap, key, text string) (changed bool) {
	if is.Data[key] == text {
		return false
	}
	if is.Data == nil {
		is.Data = map[string]string{}
	}
	is.Data[key] = text
	return true
}
