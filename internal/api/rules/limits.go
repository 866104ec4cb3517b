package rules

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Limits of Envoy. It rejects a whole resource for one value beyond, so all that belongs to the resource stays as it was.
const (
	maxServerName      = 255
	maxCookieAttribute = 16384
	maxQueryName       = 1024
	maxHeader          = 16384 // of the name of a header
	maxPattern         = 16384 // of texts that Envoy compiles to a regular expression, whose size proxies limit
)

// serverName checks the server name that a client names in its first TLS message.
func (c *checker) serverName(p *document.Path, name string) {
	c.atMostBytes(p, name, maxServerName)
	if strings.Contains(name, "\x00") {
		c.fail(p, "has a NUL character, which no server name has; remove it")
	}
}

// cookieAttribute checks the value of an attribute of a cookie.
func (c *checker) cookieAttribute(p *document.Path, a *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie_Attribute) {
	c.atMostBytes(p, a.GetValue(), maxCookieAttribute)
	if strings.ContainsAny(a.GetValue(), "\x00\r\n") {
		c.fail(p, "has control characters; remove them")
	}
}

// headerText refuses a name, or a part of a value, that Envoy takes for no header. It returns whether it did.
func (c *checker) headerText(p *document.Path, text string) bool {
	if strings.ContainsAny(text, "\x00\r\n") {
		c.fail(p, "has line breaks or NUL characters, which no header has; remove them")
		return true
	}
	c.atMostBytes(p, text, maxHeader)
	return len(text) > maxHeader
}

// patterns checks texts of an access policy that become regular expressions.
func (c *checker) patterns(p *document.Path, texts []string) {
	for i, text := range texts {
		c.atMostBytes(p.At(i), text, maxPattern)
	}
}

func (c *checker) atMostBytes(p *document.Path, text string, limit int) {
	if len(text) > limit {
		c.fail(p, "Envoy takes at most %d bytes, and this value has %d; shorten it", limit, len(text))
	}
}
