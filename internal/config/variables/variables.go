// Package variables says which environment variables of another program act here, and which were set without effect.
//
// It owns the rule for remarks: a variable without effect is remarked upon unless its value is the usual one, or disables a feature.
// It is pure and starts no goroutines.
package variables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/spelling"
)

// Variable is an environment variable. A name that ends with a star means all names with that prefix.
type Variable struct {
	Name string
	// Exactly one is set: the effect of the variable (Does), or the reason why it has none.
	Does, Lacks string
	// Usual is the value without a remark; if it is empty, values that disable a feature have none.
	Usual string
}

// Disabled are the values that disable a feature. They need no remark that the variable has no effect.
func Disabled() []string { return []string{"", "0", "false", "{}"} }

// Is reports whether the variable has a name.
func (v Variable) Is(name string) bool {
	prefix, many := strings.CutSuffix(v.Name, "*")
	return name == v.Name || many && strings.HasPrefix(name, prefix)
}

// NeedsRemark reports whether the variable, which has no effect, is set to something that would have one.
func (v Variable) NeedsRemark(value string) bool {
	if v.Usual != "" {
		return value != "" && value != v.Usual
	}
	return !slices.Contains(Disabled(), value)
}

// Effect returns the effect as a table says it.
func (v Variable) Effect() string {
	if v.Lacks != "" {
		return "none: " + v.Lacks
	}
	return v.Does
}

// Vain returns a remark about each variable of an environment, a list of NAME=VALUE, that has no effect although the value asks for one, in
// the order of names. It also remarks upon names that are not in the table and begin with a prefix that is the program's own.
func Vain(table []Variable, environ []string, prefixes ...string) (remarks []string) {
	names := make([]string, 0, len(table))
	for _, v := range table {
		names = append(names, v.Name)
	}
	for _, e := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(e, "=")
		i := slices.IndexFunc(table, func(v Variable) bool { return v.Is(name) })
		switch {
		case i >= 0 && table[i].Lacks != "" && table[i].NeedsRemark(value):
			remarks = append(remarks, fmt.Sprintf("%s=%s has no effect: %s", name, value, table[i].Lacks))
		case i < 0 && !ofService(name) && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
			remark := fmt.Sprintf("%s has no effect: there is no such variable", name)
			if near := spelling.Closest(name, names); near != "" && spelling.Distance(name, near, 4) < 4 {
				remark += "; did you mean " + near + "?"
			}
			remarks = append(remarks, remark)
		}
	}
	return remarks
}

// ofService reports whether Kubernetes sets a variable to the address of a Service.
func ofService(name string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") || strings.HasSuffix(name, "_PORT") || strings.Contains(name, "_PORT_")
}
