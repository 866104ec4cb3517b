package syntax

import (
	"strings"
	"testing"
)

// FuzzKeySet checks that a set of keys is judged without a panic, and that the reason quotes nothing of it.
func FuzzKeySet(f *testing.F) {
	f.Add(`{"keys":[{"kty":"oct","k":"secret-of-mine"}]}`)
	f.Add(`{"keys":[{"kty":"","k":"secret-of-mine"}]}`)
	f.Add(`{"keys":[null,{"kty":3}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		reason := CheckKeySet([]byte(text))
		if len(text) > 40 && strings.Contains(reason, text) {
			t.Errorf("the reason has the text: %s", reason)
		}
		if _, ok := parseKeySet([]byte(text)); !ok && reason == "" {
			t.Error("a text that is no set is taken for one")
		}
	})
}
