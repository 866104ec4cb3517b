package syntax

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// KeySet checks a set of JSON Web Keys, or a single key. The reason holds nothing of the text. secret is true if anyone who can
// read one of the keys can make tokens: the key is symmetric, or has its private part.
func KeySet(text []byte) (secret bool, reason string) {
	var set struct {
		Keys *[]map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return false, `is not a set of JSON Web Keys; write {"keys": [...]}`
	}
	if set.Keys == nil {
		var one map[string]any
		if err := json.Unmarshal(text, &one); err != nil || one["kty"] == nil {
			return false, `is not a set of JSON Web Keys; write {"keys": [...]}`
		}
		set.Keys = &[]map[string]any{one}
	}
	for i, key := range *set.Keys {
		if reason := webKey(key); reason != "" {
			return false, fmt.Sprintf("keys[%d] %s", i, reason)
		}
		secret = secret || key["kty"] == "oct" || key["d"] != nil
	}
	return secret, ""
}

// webKey checks a JSON Web Key.
func webKey(key map[string]any) string {
	var members string
	switch key["kty"] {
	case "RSA":
		members = "n e"
	case "EC":
		members = "crv x y"
	case "OKP":
		members = "crv x"
	case "oct":
		members = "k"
	case nil:
		return "has no type (kty)"
	default:
		return "has an unknown type; kty is one of RSA, EC, OKP and oct"
	}
	for name := range strings.FieldsSeq(members) {
		text, ok := key[name].(string)
		if !ok || text == "" {
			return fmt.Sprintf("has no member %s, which a key of its type has", name)
		}
		if _, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "=")); err != nil && name != "crv" {
			return fmt.Sprintf("has a member %s that is not base64url", name)
		}
	}
	return ""
}

// MaxKeySet is the maximum size of a key set.
const MaxKeySet = 1 << 20

// keySet is a set of JSON Web Keys, as far as it is looked at.
type keySet struct {
	Keys []keyHeader `json:"keys"`
}

type keyHeader struct {
	Type string `json:"kty"`
}

func parseKeySet(text []byte) (set keySet, ok bool) {
	err := json.Unmarshal(text, &set)
	return set, err == nil && set.Keys != nil
}

// CheckKeySet returns why a text is not a set of JSON Web Keys; "" if it is one. The reason holds nothing of the text.
func CheckKeySet(text []byte) string {
	if len(text) > MaxKeySet {
		return fmt.Sprintf("has %d bytes, the limit is %d", len(text), MaxKeySet)
	}
	set, ok := parseKeySet(text)
	if !ok {
		return `is not a set of JSON Web Keys; write {"keys": [...]}`
	}
	for i, key := range set.Keys {
		if key.Type == "" {
			return fmt.Sprintf("keys[%d] has no type (kty)", i)
		}
	}
	return ""
}
