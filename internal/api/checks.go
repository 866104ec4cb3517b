package api

import (
	"cmp"

	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// Brackets splits the part "[a][b]" of a condition of an AuthorizationPolicy into a and b. ok is false if the text has another form.
func Brackets(s string) (names []string, ok bool) { return syntax.Brackets(s) }

// MaxKeySet is the size of the largest set of JSON Web Keys.
const MaxKeySet = syntax.MaxKeySet

// CheckKeySet returns why a text is not a set of JSON Web Keys; "" if it is one. The reason holds nothing of the text.
func CheckKeySet(text []byte) string { return syntax.CheckKeySet(text) }

// CheckPathTemplate checks a path of an AuthorizationPolicy; the result is the reason why it is wrong, or "".
func CheckPathTemplate(path string) string { return syntax.PathTemplate(path) }

// CheckNames checks the namespace and the name of an object; the result is the reason why one is wrong, or "".
func CheckNames(namespace, name string) string {
	return cmp.Or(syntax.Label(namespace), syntax.Subdomain(name))
}
