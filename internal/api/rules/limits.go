package rules

import "github.com/pilotmesh/pilot/internal/api/document"

// Limits of Envoy, in bytes.
const (
	maxQueryName = 1024
	maxPattern   = 16384 // of texts that Envoy compiles to a regular expression, whose size proxies limit
)

// patterns checks texts of an access policy that become regular expressions.
func (c *checker) patterns(p *document.Path, texts []string) {
	for i, text := range texts {
		c.AtMostBytes(p.At(i), text, maxPattern)
	}
}
