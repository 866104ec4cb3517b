package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotmesh/pilot/internal/inject/webhook"
)

// WebhookMetrics are the metrics of the webhooks. Their names are Istio's.
type WebhookMetrics struct {
	requests, injected, skipped, failed, valid, invalid, unreadable prometheus.Counter
}

// Webhooks adds the metrics.
func (m *Metrics) Webhooks() *WebhookMetrics {
	return &WebhookMetrics{
		requests:   m.counter("sidecar_injection_requests_total", "Pods that API servers have sent for injection."),
		injected:   m.counter("sidecar_injection_success_total", "Pods that were injected."),
		skipped:    m.counter("sidecar_injection_skip_total", "Pods that were admitted without a proxy, because a rule says so."),
		failed:     m.counter("sidecar_injection_failure_total", "Pods that should have a proxy and could not be injected."),
		valid:      m.counter("galley_validation_passed", "Objects that the validating webhook has admitted."),
		invalid:    m.counter("galley_validation_failed", "Objects that the validating webhook has refused."),
		unreadable: m.counter("galley_validation_http_error", "Requests to the webhooks that are no admission requests."),
	}
}

// Observe counts an outcome.
func (w *WebhookMetrics) Observe(e webhook.Event) {
	switch e {
	case webhook.Injected:
		w.requests.Inc()
		w.injected.Inc()
	case webhook.Skipped:
		w.requests.Inc()
		w.skipped.Inc()
	case webhook.InjectionFailed:
		w.requests.Inc()
		w.failed.Inc()
	case webhook.Valid:
		w.valid.Inc()
	case webhook.Invalid:
		w.invalid.Inc()
	case webhook.Unreadable:
		w.unreadable.Inc()
	}
}
