package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
)

// webhooksPeriod is how often the configurations of the webhooks are checked. Whoever applies a manifest again removes the roots.
const webhooksPeriod = 10 * time.Second

// Webhooks writes the roots that vouch for the control plane into the configurations of its webhooks, so that API servers call it. All
// else in these objects belongs to the installation.
type Webhooks struct {
	client typed.AdmissionregistrationV1Interface
	// Namespace is the namespace of the control plane. Webhooks of services of other namespaces are left alone.
	Namespace string
	// Mutating and Validating are the names of the objects. One that does not exist is no error.
	Mutating, Validating string
	// Roots returns the roots.
	Roots func() []byte
	Log   *slog.Logger
}

// NewWebhooks returns a writer to an API server. It sends no request.
func NewWebhooks(config *rest.Config) (*Webhooks, error) {
	client, err := typed.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), "webhooks"))
	if err != nil {
		return nil, fmt.Errorf("a client for the configurations of webhooks: %w", err)
	}
	return &Webhooks{client: client}, nil
}

// Run writes the roots until ctx ends.
func (w *Webhooks) Run(ctx context.Context) {
	const message = "API servers may not be able to call the webhooks, because their configuration cannot be written; it is tried again"
	keepWriting(ctx, webhooksPeriod, w.Log, message, func() error {
		return errors.Join(w.mutating(ctx), w.validating(ctx))
	})
}

func (w *Webhooks) mutating(ctx context.Context) error {
	at := w.client.MutatingWebhookConfigurations()
	is, err := at.Get(ctx, w.Mutating, metav1.GetOptions{})
	if err != nil {
		return w.explain(w.Mutating, err)
	}
	clients := make([]registration.WebhookClientConfig, len(is.Webhooks))
	for n := range is.Webhooks {
		clients[n] = is.Webhooks[n].ClientConfig
	}
	patch, err := w.patch(is.ResourceVersion, clients)
	if err != nil || patch == nil {
		return err
	}
	_, err = at.Patch(ctx, w.Mutating, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return w.explain(w.Mutating, err)
}

func (w *Webhooks) validating(ctx context.Context) error {
	if w.Validating == "" {
		return nil
	}
	at := w.client.ValidatingWebhookConfigurations()
	is, err := at.Get(ctx, w.Validating, metav1.GetOptions{})
	if err != nil {
		return w.explain(w.Validating, err)
	}
	clients := make([]registration.WebhookClientConfig, len(is.Webhooks))
	for n := range is.Webhooks {
		clients[n] = is.Webhooks[n].ClientConfig
	}
	patch, err := w.patch(is.ResourceVersion, clients)
	if err != nil || patch == nil {
		return err
	}
	_, err = at.Patch(ctx, w.Validating, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return w.explain(w.Validating, err)
}

// patch returns the patch that writes the roots into the webhooks of the control plane's namespace; nil if they have them. It fails if the
// object has changed since it was read.
func (w *Webhooks) patch(version string, clients []registration.WebhookClientConfig) ([]byte, error) {
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	roots := w.Roots()
	steps := []step{{"test", "/metadata/resourceVersion", version}}
	for n, c := range clients {
		if c.Service == nil || c.Service.Namespace != w.Namespace || string(c.CABundle) == string(roots) {
			continue
		}
		steps = append(steps, step{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", n), roots})
	}
	if len(steps) == 1 || len(roots) == 0 {
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
