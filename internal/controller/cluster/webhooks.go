package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/controller/schedule"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

const (
	// webhooksPeriod is how often the configurations of the webhooks are checked. To apply a manifest again removes the roots.
	webhooksPeriod = 10 * time.Second
	// awaiting is how long the webhooks of a new installation are looked for every second: they are made when a replica is available.
	awaiting = time.Minute
	// leaving is how long the last replica may take to make validation fail open when it ends.
	leaving = 5 * time.Second
	// defaultValidator is the configuration of the checking webhook of the tag "default".
	defaultValidator = "istiod-default-validator"
	defaultTag       = "default"
)

// Names of checking webhooks end with the suffix checking. The prefix neverBlock marks the ones for the control plane's own namespace.
const (
	checking   = "validation.istio.io"
	neverBlock = "own."
)

// Webhooks keeps the configurations of the webhooks of a control plane and of its tags: the roots that vouch for it, so that API servers call it, and
// the failurePolicy of the checking ones: Fail after a test has shown that API servers reach them, and Ignore when nothing answers. All else in these
// objects belongs to the installation. Injecting webhooks keep their failurePolicy, because no pod may start without its proxy.
type Webhooks struct {
	client *kubeclient.Hooks
	probe  *probe
	// Namespace is the namespace of the control plane. Webhooks of services of other namespaces are left alone.
	Namespace string
	// Revision is the value of istio.io/rev of the control plane.
	Revision string
	// Test describes the self-test of the checking webhook.
	Test SelfTest
	// Pod is the name of the pod of this replica; empty if there is none.
	Pod string
	// Mutating and Validating are the names of the objects. One that does not exist is no error.
	Mutating, Validating string
	// Roots returns the roots.
	Roots func() []byte
	Log   *slog.Logger

	policy policy
}

// NewWebhooks returns a writer to an API server. It sends no request.
func NewWebhooks(config *rest.Config) (*Webhooks, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "webhooks")
	client, err := kubeclient.NewHooks(config)
	if err != nil {
		return nil, fmt.Errorf("a client for the configurations of webhooks: %w", err)
	}
	p, err := newProbe(config)
	if err != nil {
		return nil, err
	}
	return &Webhooks{client: client, probe: p}, nil
}

// Run keeps the configurations until ctx ends. If this was the last replica, validation fails open from then on.
func (w *Webhooks) Run(ctx context.Context) {
	const message = "the configuration of the webhooks cannot be kept, and API servers may not be able to call them; it is tried again"
	w.probe.namespace, w.probe.revision, w.probe.test = w.Namespace, w.Revision, w.Test
	// Webhooks of tags, and checking ones, do not wait for an injecting one that is not made yet. An error that persists is logged below.
	_ = w.inject(ctx)
	_, _ = w.checks(ctx)
	w.await(ctx)
	type all struct{} // the configurations are one value
	writes := schedule.Writes[all, all]{
		Look:    func(context.Context) (iter.Seq2[all, all], error) { return maps.All(map[all]all{{}: {}}), nil },
		Compare: func(all, all) int { return 0 }, Pauses: schedule.Pauses{First: webhooksPeriod, Longest: webhooksPeriod}, Repeat: webhooksPeriod,
		Write: func(ctx context.Context, _, _ all) (known bool, err error) {
			return true, errors.Join(w.inject(ctx), w.validate(ctx))
		},
		Failed: func(_ all, err error) { w.Log.Warn(message, "error", err) },
	}
	writes.Run(ctx)
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer stop()
	if err := w.leave(ending); err != nil {
		w.Log.Warn("this may be the last replica, and the checking webhook may block changes of configuration until one runs again", "error", err)
	}
}

// inject keeps the configurations of the injecting webhooks: the one of the revision, and the ones of its tags.
func (w *Webhooks) inject(ctx context.Context) error {
	tags, err := w.tags(ctx)
	for _, name := range append(tags, w.Mutating) {
		err = errors.Join(err, w.mutating(ctx, name))
	}
	return err
}

// await waits until the injecting webhook exists, and a moment longer, because the checking one is made after it.
func (w *Webhooks) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, awaiting)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for missed, there := false, false; !there; {
		_, err := w.client.Mutating().Get(ctx, w.Mutating, metav1.GetOptions{})
		if there = !apierrors.IsNotFound(err); there && !missed {
			return
		}
		missed = true
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// tags returns the configurations of the tags of this revision.
func (w *Webhooks) tags(ctx context.Context) (names []string, err error) {
	list, err := w.client.Mutating().List(ctx, metav1.ListOptions{LabelSelector: tagName + "," + revisionName + "=" + w.Revision})
	if err != nil {
		return nil, fmt.Errorf("listing the tags of the revision %s: %w", w.Revision, err)
	}
	for n := range list.Items {
		names = append(names, list.Items[n].Name)
	}
	return names, nil
}

// validate keeps the checking webhooks: first their roots, then the policy, which depends on them.
func (w *Webhooks) validate(ctx context.Context) error {
	if w.Validating == "" {
		return nil
	}
	if there, err := w.checks(ctx); err != nil || !there {
		return err
	}
	answered, err := w.probe.answered(ctx)
	if err != nil {
		return err // the policy stays as it is
	}
	if changed := w.policy.saw(answered); changed {
		w.Log.Info("the checking webhook was tested", "answers", answered, "failure_policy", w.policy.is)
		_, err = w.checks(ctx)
	}
	return err
}

// checks keeps the configurations of the checking webhooks, and reports whether there is one.
func (w *Webhooks) checks(ctx context.Context) (there bool, all error) {
	for _, name := range []string{w.Validating, defaultValidator} {
		found, err := w.validating(ctx, name)
		there, all = there || found, errors.Join(all, err)
	}
	return there, all
}

// leave makes the checking webhooks fail open if no other replica answers them.
func (w *Webhooks) leave(ctx context.Context) error {
	if w.Validating == "" || w.policy.is != registration.Fail {
		return nil
	}
	is, err := w.client.Validating().Get(ctx, w.Validating, metav1.GetOptions{})
	if err != nil {
		return w.explain(w.Validating, err)
	}
	for _, one := range is.Webhooks {
		s := one.ClientConfig.Service
		if s == nil || s.Namespace != w.Namespace {
			continue
		}
		others, err := w.probe.others(ctx, s.Name, w.Pod)
		if err != nil || others {
			return err
		}
		break
	}
	w.policy = policy{is: registration.Ignore}
	_, err = w.checks(ctx)
	return err
}

// hook is the part of a webhook that is kept.
type hook struct {
	client registration.WebhookClientConfig
	// fails is its failurePolicy, and wants the one that it should have; empty for one that is left alone.
	fails, wants registration.FailurePolicyType
}

func (w *Webhooks) mutating(ctx context.Context, name string) error {
	at := w.client.Mutating()
	is, err := at.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return w.explain(name, err)
	}
	hooks := make([]hook, len(is.Webhooks))
	for n := range is.Webhooks {
		hooks[n] = hook{client: is.Webhooks[n].ClientConfig}
	}
	patch, err := w.patch(is.ResourceVersion, hooks)
	if err != nil || patch == nil {
		return err
	}
	_, err = at.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return w.explain(name, err)
}

// validating keeps one configuration, and reports whether it exists. The one of the tag "default" may belong to another revision.
func (w *Webhooks) validating(ctx context.Context, name string) (there bool, err error) {
	at := w.client.Validating()
	is, err := at.Get(ctx, name, metav1.GetOptions{})
	switch {
	case name == defaultValidator && (apierrors.IsForbidden(err) || err == nil && is.Labels[revisionName] != w.Revision):
		return false, nil
	case err != nil:
		return false, w.explain(name, err)
	}
	hooks := make([]hook, len(is.Webhooks))
	for n := range is.Webhooks {
		one := &is.Webhooks[n]
		hooks[n] = hook{client: one.ClientConfig}
		if one.FailurePolicy != nil {
			hooks[n].fails = *one.FailurePolicy
		}
		if strings.HasSuffix(one.Name, checking) && !strings.HasPrefix(one.Name, neverBlock) {
			hooks[n].wants = w.policy.is
		}
	}
	patch, err := w.patch(is.ResourceVersion, hooks)
	if err != nil || patch == nil {
		return true, err
	}
	_, err = at.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return true, w.explain(name, err)
}

// patch returns the patch that writes roots and policies into the webhooks of the control plane's namespace; nil if they have them. It fails
// if the object has changed since it was read.
func (w *Webhooks) patch(version string, hooks []hook) ([]byte, error) {
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	roots := w.Roots()
	if len(roots) == 0 {
		return nil, nil
	}
	steps := []step{{"test", "/metadata/resourceVersion", version}}
	for n, h := range hooks {
		if h.client.Service == nil || h.client.Service.Namespace != w.Namespace {
			continue
		}
		if string(h.client.CABundle) != string(roots) {
			steps = append(steps, step{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", n), roots})
		}
		if h.wants != "" && h.wants != h.fails {
			steps = append(steps, step{"add", fmt.Sprintf("/webhooks/%d/failurePolicy", n), h.wants})
		}
	}
	if len(steps) == 1 {
		return nil, nil
	}
	return json.Marshal(steps)
}

// explain adds the remedy to an error; nil for errors that pass.
func (w *Webhooks) explain(name string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return nil // the installation has no such webhook, or another client writes: the next look shows it
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; add the rule {apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations], resourceNames: [%s], verbs: [get, patch]} to the ClusterRole of the control plane", err, name)
	}
	return fmt.Errorf("the configuration %s: %w", name, err)
}
