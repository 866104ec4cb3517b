package configdump

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
)

// Redacted is the text in the place of a secret. Envoy writes the same one.
const Redacted = "[redacted]"

// redactedBytes is how Envoy writes it in a field of bytes.
const redactedBytes = "W3JlZGFjdGVkXQ=="

// isSecret reports whether a field holds a key, password or token. Fields that only name a secret are none.
func isSecret(field string) bool {
	switch strings.ToLower(strings.ReplaceAll(field, "_", "")) {
	case "privatekey", "password", "authpassword", "genericsecret", "sessionticketkeys", "privatekeyprovider", "pkcs12", "token", "tokensecret", "hmacsecret", "apikey", "accesstoken", "clientsecret", "bearertoken":
		return true
	}
	return false
}

// Redact returns a JSON value without private keys, passwords, tokens and the values of headers that authenticate.
func Redact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return redactObject(v)
	case []any:
		list := make([]any, len(v))
		for i, one := range v {
			list[i] = Redact(one)
		}
		return list
	case string:
		if isKey(v) {
			return Redacted
		}
	}
	return v
}

func redactObject(m map[string]any) map[string]any {
	clean := make(map[string]any, len(m))
	for field, value := range m {
		if _, names := value.(bool); isSecret(field) && !names && value != nil {
			clean[field] = Redacted
			continue
		}
		clean[field] = Redact(value)
	}
	for _, name := range []string{"key", "name", "header_name", "headerName"} {
		if authenticates(text(m, name)) {
			for _, value := range []string{"value", "raw_value", "rawValue"} {
				if _, ok := clean[value]; ok {
					clean[value] = Redacted
				}
			}
		}
	}
	for field := range maps.Keys(m) {
		if authenticates(field) {
			clean[field] = Redacted
		}
	}
	return clean
}

// authenticates reports whether a header carries a credential.
func authenticates(header string) bool {
	return slices.Contains([]string{"authorization", "proxy-authorization", "cookie", "x-api-key", "dd-api-key"}, strings.ToLower(header))
}

// isKey reports whether a text is, or has in it, a private key in PEM, also as base64.
func isKey(s string) bool {
	if strings.Contains(s, "PRIVATE KEY-----") {
		return true
	}
	const begin = "LS0tLS1CRUdJTi" // "-----BEGIN" in base64
	if !strings.HasPrefix(s, begin) {
		return false
	}
	plain, err := base64.StdEncoding.DecodeString(s)
	return err != nil || strings.Contains(string(plain), "PRIVATE KEY-----")
}

// secret describes an entry of the section of secrets. Its content is only read for certificates.
func secret(entry map[string]any, state string) Secret {
	body := object(entry["secret"])
	s := Secret{Name: text(entry, "name"), Type: "other", State: state}
	if s.Name == "" {
		s.Name = text(body, "name")
	}
	chain, roots := at(body, "tls_certificate", "certificate_chain"), at(body, "validation_context", "trusted_ca")
	switch {
	case object(body["tls_certificate"]) != nil:
		s.Type = "certificate"
		s.Certificates, s.Remark = certificates(chain)
		s.Certificates = s.Certificates[:min(1, len(s.Certificates))]
	case object(body["validation_context"]) != nil:
		s.Type = "roots"
		s.Certificates, s.Remark = certificates(roots)
	case state == warming:
		s.Remark = "Envoy waits for it"
	}
	return s
}

// certificates returns the certificates of a data source.
func certificates(source map[string]any) (list []Certificate, remark string) {
	if file := text(source, "filename"); file != "" {
		return nil, "in the file " + file
	}
	content := []byte(text(source, "inline_string"))
	if inline := text(source, "inline_bytes"); inline != "" {
		var err error
		if content, err = base64.StdEncoding.DecodeString(inline); err != nil {
			return nil, "not readable"
		}
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			list = append(list, describe(c))
		}
	}
	if len(list) == 0 {
		remark = "no certificate"
	}
	return list, remark
}

func describe(c *x509.Certificate) Certificate {
	subject := c.Subject.String()
	if len(c.URIs) > 0 {
		subject = c.URIs[0].String()
	}
	return Certificate{Serial: c.SerialNumber.Text(16), Subject: subject, NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC()}
}
