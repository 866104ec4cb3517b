package bugreport

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/pilotmesh/pilot/internal/explain/configdump"
)

// replaced is the text in the place of a secret.
const replaced = configdump.Redacted

// patterns find secrets in any text.
func patterns() []*regexp.Regexp {
	return []*regexp.Regexp{
		// A private key in PEM, with line breaks or with "\n"; without its end, up to the end of the text.
		regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`),
		// The same in base64, at any of the three offsets of "PRIVATE KEY", in a run of base64.
		regexp.MustCompile(`[A-Za-z0-9+/_=-]*(?:UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW)[A-Za-z0-9+/_=-]*`),
		// A token (JWT).
		regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
		regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/_.~=-]{8,}`),
		// The user and password of a URL.
		regexp.MustCompile(`//[^/\s"'@:]+:[^/\s"'@]+@`),
		// NAME=VALUE and "NAME": "VALUE" in logs.
		regexp.MustCompile(`(?i)["']?\b[a-z_.-]*(?:password|passwd|secret_?key|api_?key|access_?token|client_?secret|private_?key)["']?\s*[:=]\s*["']?[^\s"',{}\[\]]+`),
	}
}

// withoutSecrets returns content without private keys, passwords and tokens.
func withoutSecrets(body []byte) []byte {
	if v := any(nil); json.Unmarshal(body, &v) == nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if e.Encode(configdump.Redact(v)) == nil {
			body = b.Bytes()
		}
	}
	for _, p := range patterns() {
		body = p.ReplaceAll(body, []byte(replaced))
	}
	return body
}
