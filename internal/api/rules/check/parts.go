package check

import (
	"net/http"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// NoPair is why a ConfigMap cannot replace a Secret with a certificate and its key.
const NoPair = "a ConfigMap has no certificate with its key, so connections fail; name a Secret"

// maxHeader is the limit of Envoy for the name of a header, in bytes.
const maxHeader = 16384

// HeaderText refuses a name, or a part of a value, that Envoy takes for no header. It returns whether it did.
func (c *Checker) HeaderText(p *document.Path, text string) bool {
	if strings.ContainsAny(text, "\x00\r\n") {
		c.Fail(p, "has line breaks or NUL characters, which no header has; remove them")
		return true
	}
	c.AtMostBytes(p, text, maxHeader)
	return len(text) > maxHeader
}

// Curves warns of names in a list that are no curves of Envoy, and that are named twice.
func (c *Checker) Curves(p *document.Path, names []string) {
	c.known(p, names, "curve", syntax.IsCurve)
}

// Ciphers warns of names in a list that are no cipher suites of Envoy, and that are named twice.
func (c *Checker) Ciphers(p *document.Path, names []string) {
	c.known(p, names, "cipher suite", syntax.IsCipher)
}

// known warns of names in a list that are not known, and that are named twice.
func (c *Checker) known(p *document.Path, names []string, what string, is func(string) bool) {
	seen := map[string]bool{}
	for i, name := range names {
		if !is(name) && !(what == "cipher suite" && isCipherGroup(name)) {
			c.Warn(p.At(i), "%s is not a %s that is known here: ignored", document.Quote(name), what)
		}
		if seen[name] {
			c.Warn(p.At(i), "%s is named twice", document.Quote(name))
		}
		seen[name] = true
	}
}

// isCipherGroup reports whether a text means several suites, in the notation of OpenSSL.
func isCipherGroup(name string) bool {
	return name == "" || name == "ALL" || strings.ContainsAny(name[:1], "+-!@")
}

// retryConditions are the names of Envoy's retry conditions.
const retryConditions = " 5xx gateway-error reset reset-before-request connect-failure envoy-ratelimited retriable-4xx " +
	"refused-stream retriable-status-codes retriable-headers http3-post-connect-failure " +
	"cancelled deadline-exceeded internal resource-exhausted unavailable "

// Retries checks how requests are repeated.
func (c *Checker) Retries(p *document.Path, r *networking.HTTPRetry) {
	if r == nil {
		return
	}
	if r.Attempts == 0 && (r.PerTryTimeout != nil || r.RetryOn != "" || r.RetryRemoteLocalities != nil ||
		r.RetryIgnorePreviousHosts != nil || r.Backoff != nil) {
		c.Fail(p.Field("attempts"), "0 switches retries off, and the other settings contradict that; set attempts or remove them")
	}
	if r.RetryOn == "" {
		return
	}
	for condition := range strings.SplitSeq(r.RetryOn, ",") {
		if status, err := strconv.Atoi(condition); err == nil && http.StatusText(status) != "" {
			continue
		}
		if condition == "" || strings.Contains(condition, " ") || !strings.Contains(retryConditions, " "+condition+" ") {
			c.Fail(p.Field("retryOn"), "%s is no condition; conditions are separated by commas without blanks: %s or an HTTP status",
				document.Quote(condition), strings.ReplaceAll(strings.TrimSpace(retryConditions), " ", ", "))
		}
	}
}

// CustomTag checks a tag of traces, which may have the value of a header.
func (c *Checker) CustomTag(p *document.Path, name, header string) {
	if name == "" {
		c.Fail(p, "a tag needs a name")
	}
	c.HeaderText(p.Field("header").Field("name"), header)
}
