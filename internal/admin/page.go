package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/pilotmesh/pilot/internal/loop"
)

// page is one page of JSON under /debug.
type page struct {
	Path string `json:"path"`
	What string `json:"what"`
	// Parameters are the parameters of the URL query, as "name=example".
	Parameters []string `json:"parameters,omitempty"`

	show func(*http.Request) (any, error)
	// proxies is true if the page is about connected proxies alone, so that it can be restricted to the proxies of one namespace.
	proxies bool
}

func (p *Pages) pages() []page {
	object := []string{"kind=", "namespace=", "name="}
	proxyID := "proxyID="
	return []page{
		{"/debug/syncz", "per proxy and type: the resources sent, acknowledged, rejected", []string{"namespace=", proxyID, "proxy="}, p.syncz, true},
		{"/debug/explain", "what something a proxy has is made of, or why it does not have it", []string{proxyID, "kind=host", "name=", "prefix="}, p.explain, true},
		{"/debug/can-i", "whether a request to a service is allowed, and which rule decides",
			[]string{"from=shop/web", "to=reviews.shop:9080", "method=GET", "path=/", "header=name=value", "jwt-claims=", "from-ip=", "sni=", "plaintext"}, p.canI, false},
		{"/debug/ingressz", "what gateways serve for the hosts of Ingresses, and which Ingresses do not count", []string{"host=shop.example.com"}, p.ingressz, false},
		{"/debug/gatewayz", "which gateway answers a request from outside, or why none does; without a host, the gateways and the claims on hosts", []string{"host=shop.example.com:443/cart"}, p.gatewayz, false},
		{"/debug/patchz", "what the patches of an EnvoyFilter do, with the resources before and after", []string{"namespace=", "name="}, p.patchz, false},
		{"/debug/live", "how many of the proxies that need an object have acknowledged it, and which have not", object, p.live, false},
		{"/debug/connections", "who is connected, from where and since when", []string{proxyID}, p.connections, true},
		{"/debug/adsz", "who is connected, and what they asked for", []string{proxyID}, p.adsz, true},
		{"/debug/sidecarz", "what a proxy sees: its Sidecar, if one narrows it, and the hosts", []string{proxyID}, p.sidecarz, true},
		{"/debug/instancesz", "what the workloads of connected proxies serve", []string{proxyID}, p.instancesz, true},
		{"/debug/edsz", "the endpoints a proxy is to have", []string{proxyID}, p.edsz, true},
		{"/debug/push_status", "the last commit, and who has not acknowledged it or rejects some of it", nil, p.pushStatus, false},
		{"/debug/config_dump", "the resources a proxy is to have, in the form of Envoy's own config_dump",
			[]string{proxyID, "types=cds,lds,rds,eds", "include_eds"}, p.configDump, true},
		{"/debug/configz", "the objects in force, and where they were read", append(slices.Clone(object), "names"), p.configz, false},
		{"/debug/registries", "the registries outside Kubernetes: their states, what they hold, and what of them has no effect", nil, p.registries, false},
		{"/debug/exportz", "the services of registries as ServiceEntries, and what those do not have", []string{"registry=west"}, p.exportz, false},
		{"/debug/clusterz", "the remote clusters: their Secrets and states, and what cannot be read", nil, p.clusters, false},
		{"/debug/registryz", "the services", []string{"namespace=", "host="}, p.registryz, false},
		{"/debug/endpointz", "the endpoints of the services", []string{"namespace=", "host="}, p.endpointz, false},
		{"/debug/mesh", "the mesh configuration in force", nil, p.mesh, false},
		{"/debug/problemz", "everything that is wrong, ignored or not supported: object, place, reason, since when",
			append(object, "level=error"), p.problemz, false},
		{"/debug/historyz", "the last commits, and which rows each of them changed", []string{"revision=812", "table="}, p.historyz, false},
		{"/debug/cellz", "the incremental state: cells by query, faults, the last commits and what they cost", nil, p.cellz, false},
	}
}

// refusal is an error whose text is sent to the client.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// json serves the result of show as JSON.
func (p *Pages) json(show func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := encode(r, show)
		if err != nil {
			no := refusalOf(err)
			http.Error(w, no.text, no.status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // an error means that the client has gone
	})
}

// encode returns the body of a page. ?pretty indents it.
func encode(r *http.Request, show func(*http.Request) (any, error)) ([]byte, error) {
	v, err := show(r)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if r.URL.Query().Has("pretty") {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("rendering the page: %w", err)
	}
	return body.Bytes(), nil
}

// refusalOf returns the message for the client and the HTTP status of an error.
func refusalOf(err error) *refusal {
	if no, ok := errors.AsType[*refusal](err); ok {
		return no
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &refusal{http.StatusServiceUnavailable, fmt.Sprintf("the control plane is busy: %v; try again", err)}
	}
	return &refusal{http.StatusInternalServerError, err.Error()}
}

// inspect runs fn on the loop and returns its result.
func inspect[T any](r *http.Request, p *Pages, fn func(*loop.View) T) (T, error) {
	ctx, cancel := context.WithTimeout(r.Context(), inspectTimeout)
	defer cancel()
	return loop.Look(ctx, p.Mesh, fn)
}
