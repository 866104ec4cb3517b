// Package sts exchanges tokens for programs of the workload (RFC 8693): they send the token that they have to the agent, which passes
// it on to a security token service, and the answer back. So programs need to know one address, on loopback, and no roots.
//
// Invariants: tokens are neither logged nor kept. Redirects of the service are not followed, because they would give a token to
// another server. Sizes, times and the number of exchanges at the same time are limited.
//
// Goroutines: the package starts none.
package sts

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Limits.
const (
	maxRequest   = 64 << 10
	maxAnswer    = 256 << 10
	maxExchanges = 64
	timeout      = 10 * time.Second
)

// Names of RFC 8693.
const (
	grantType   = "urn:ietf:params:oauth:grant-type:token-exchange"
	tokenPrefix = "urn:ietf:params:oauth:token-type:"
	jwtType     = tokenPrefix + "jwt"
	accessType  = tokenPrefix + "access_token"
)

// Codes of errors (RFC 6749).
const (
	invalidRequest = "invalid_request"
	unsupported    = "unsupported_grant_type"
	unavailable    = "temporarily_unavailable"
	serverError    = "server_error"
)

// parameters are the parameters of a request that are passed on.
var parameters = []string{
	"grant_type", "resource", "audience", "scope", "requested_token_type", "subject_token", "subject_token_type", "actor_token", "actor_token_type",
}

// Options say where tokens are exchanged.
type Options struct {
	// Endpoint is the URL of the token service.
	Endpoint string
	// TLS is the client configuration for it.
	TLS *tls.Config
	Log *slog.Logger
}

// CheckEndpoint returns an error unless the URL is one to which tokens may be sent: over TLS, or on this host.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is not a URL such as https://sts.example.com/token", endpoint)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%q is neither https nor on this host: tokens would be sent in plain text", endpoint)
	}
	return nil
}

// Handler answers POST requests for /token.
func Handler(o Options) http.Handler {
	h := &handler{Options: o, running: make(chan struct{}, maxExchanges), client: &http.Client{
		Transport:     &http.Transport{TLSClientConfig: o.TLS, DisableKeepAlives: true}, // exchanges are rare
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	mux := http.NewServeMux()
	mux.Handle("POST /token", h)
	return mux
}

type handler struct {
	Options
	running chan struct{}
	client  *http.Client
}

// answer is a successful answer.
type answer struct {
	AccessToken  string          `json:"access_token"`
	IssuedType   string          `json:"issued_token_type"`
	TokenType    string          `json:"token_type"`
	ExpiresIn    json.RawMessage `json:"expires_in,omitempty"`
	Scope        string          `json:"scope,omitempty"`
	RefreshToken string          `json:"refresh_token,omitempty"`
}

// refusal is an error as RFC 6749 describes it, with the status of the response.
type refusal struct {
	Code        string `json:"error"`
	Description string `json:"error_description,omitempty"`
	status      int
}

// Error returns code and description.
func (r *refusal) Error() string { return r.Code + ": " + r.Description }

// ServeHTTP exchanges one token.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	default:
		h.write(w, http.StatusServiceUnavailable, &refusal{Code: unavailable, Description: fmt.Sprintf("%d exchanges are running already", maxExchanges)})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	form, err := request(r)
	var a *answer
	if err == nil {
		a, err = h.exchange(r.Context(), form)
	}
	if err != nil {
		refused, ok := errors.AsType[*refusal](err)
		if !ok {
			refused = &refusal{Code: serverError, Description: err.Error(), status: http.StatusBadGateway}
		}
		h.Log.Warn("exchanging a token", "endpoint", h.Endpoint, "error", err)
		h.write(w, refused.status, refused)
		return
	}
	h.write(w, http.StatusOK, a)
}

// request reads and checks the parameters of a request.
func request(r *http.Request) (url.Values, error) {
	refuse := func(code, format string, args ...any) (url.Values, error) {
		return nil, &refusal{Code: code, Description: fmt.Sprintf(format, args...), status: http.StatusBadRequest}
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/x-www-form-urlencoded" {
		return refuse(invalidRequest, "the content must be of the type application/x-www-form-urlencoded")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return refuse(invalidRequest, "the request cannot be read: %v", err)
	}
	given, err := url.ParseQuery(string(body))
	if err != nil {
		return refuse(invalidRequest, "the parameters cannot be read") // the error would show them
	}
	form := url.Values{}
	for _, name := range parameters {
		values := slices.DeleteFunc(slices.Clone(given[name]), func(v string) bool { return v == "" })
		if len(values) > 1 && name != "resource" && name != "audience" {
			return refuse(invalidRequest, "the parameter %s occurs %d times", name, len(values))
		}
		if len(values) > 0 {
			form[name] = values
		}
	}
	switch {
	case form.Get("grant_type") != grantType:
		return refuse(unsupported, "grant_type must be %s", grantType)
	case form.Get("subject_token") == "":
		return refuse(invalidRequest, "subject_token is missing")
	case form.Get("subject_token_type") != jwtType && form.Get("subject_token_type") != accessType:
		return refuse(invalidRequest, "subject_token_type must be %s or %s", jwtType, accessType)
	case form.Has("actor_token") != form.Has("actor_token_type"):
		return refuse(invalidRequest, "actor_token and actor_token_type must be there both or not at all")
	}
	return form, nil
}

// exchange asks the token service.
func (h *handler) exchange(ctx context.Context, form url.Values) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("the token service: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, &refusal{Code: unavailable, Description: fmt.Sprintf("the token service: %v", err), status: http.StatusServiceUnavailable}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the token service: %w", err)
	}
	return parseAnswer(resp.StatusCode, body)
}

// parseAnswer parses an answer of the token service. Its own errors are passed on with their codes. Errors contain no part of a body
// that is not an error, because it may have a token.
func parseAnswer(status int, body []byte) (*answer, error) {
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer of the token service has more than %d bytes", maxAnswer)
	}
	if status != http.StatusOK {
		r := &refusal{}
		if json.Unmarshal(body, r) != nil || r.Code == "" || status < 400 || status > 499 {
			return nil, fmt.Errorf("the token service answered %d %s", status, http.StatusText(status))
		}
		r.status = status
		return nil, r
	}
	a := &answer{}
	if json.Unmarshal(body, a) != nil {
		return nil, errors.New("the answer of the token service is not a JSON object of the right form")
	}
	switch {
	case a.AccessToken == "":
		return nil, errors.New("the answer of the token service has no access_token")
	case a.TokenType == "":
		return nil, errors.New("the answer of the token service has no token_type")
	case a.IssuedType == "":
		a.IssuedType = accessType // older services leave it out
	}
	return a, nil
}

func (h *handler) write(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if _, err := w.Write(append(b, '\n')); err != nil {
		h.Log.Debug("answering an exchange", "error", err)
	}
}
