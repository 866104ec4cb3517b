package syntax

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// expressionCall is a call in an expression, or a message.
type expressionCall struct {
	name   string
	method bool
	// arguments is how many arguments it has, and last is the text of the last one.
	arguments int
	last      string
	message   bool
}

// envoyFunction is a function of expressions that Envoy knows: how many arguments it has as a function, and as a method of a value.
type envoyFunction struct{ function, method []int }

// envoyFunctions are the functions that the expressions in access logs of Envoy may call. Envoy refuses the whole listener for any other
// one; TestFunctionsOfEnvoy asks the Envoy at hand about each of them.
func envoyFunctions() map[string]envoyFunction {
	all := map[string]envoyFunction{
		"has": {function: []int{1}}, "size": {function: []int{1}, method: []int{0}}, "type": {function: []int{1}}, "dyn": {function: []int{1}},
		"int": {function: []int{1}}, "uint": {function: []int{1}}, "double": {function: []int{1}}, "bool": {function: []int{1}},
		"bytes": {function: []int{1}}, "duration": {function: []int{1}}, "timestamp": {function: []int{1}},
	}
	for _, name := range []string{"matches", "contains", "startsWith", "endsWith"} {
		all[name] = envoyFunction{function: []int{2}, method: []int{1}}
	}
	for _, name := range []string{"FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Hours", "Minutes", "Seconds", "Milliseconds"} {
		all["get"+name] = envoyFunction{method: []int{0, 1}}
	}
	return all
}

// EnvoyExpression checks an expression in CEL that Envoy evaluates: its grammar, and that it calls only functions that Envoy knows there.
func EnvoyExpression(s string) string {
	var reason string
	functions := envoyFunctions()
	p := &expressionParser{text: s, about: func(c expressionCall) {
		if reason == "" {
			reason = c.check(functions)
		}
	}}
	p.next()
	p.expression(0)
	if wrong := Expression(s); wrong != "" {
		return wrong
	}
	if reason != "" {
		return fmt.Sprintf("Envoy cannot evaluate %s: %s", document.Quote(s), reason)
	}
	return ""
}

// UnknownName returns a name in an expression that has no value in Envoy, so that the expression has none either; empty if there is none.
func UnknownName(s string) (unknown string) {
	known := strings.Fields("request response connection upstream source destination metadata filter_state upstream_filter_state xds " +
		"bool int uint double bytes string list map null_type type google") // the second line has names of types
	p := &expressionParser{text: s, names: func(name string) {
		if unknown == "" && !slices.Contains(known, name) {
			unknown = name
		}
	}}
	p.next()
	p.expression(0)
	return unknown
}

// check returns why Envoy does not know a call; empty if it does.
func (c expressionCall) check(functions map[string]envoyFunction) string {
	if c.message {
		return "it knows no messages with fields"
	}
	f, ok := functions[c.name]
	want := f.function
	if c.method {
		want = f.method
	}
	switch {
	case slices.Contains([]string{"all", "exists", "exists_one", "map", "filter"}, c.name) && c.method:
		return c.name + "() is disabled there; name the fields one by one"
	case !ok || len(want) == 0:
		return "it knows no " + c.name + "() there"
	case !slices.Contains(want, c.arguments):
		return fmt.Sprintf("%s() has another number of arguments", c.name)
	case c.name == "matches":
		return checkLiteralRegex(c.last)
	}
	return ""
}

// checkLiteralRegex checks a regular expression that is written as a text. Envoy compiles such texts when it gets the listener.
func checkLiteralRegex(literal string) string {
	raw := strings.HasPrefix(literal, "r") || strings.HasPrefix(literal, "R")
	text := strings.TrimLeft(literal, "rR")
	if text == "" || !strings.ContainsRune(`"'`, rune(text[0])) {
		return ""
	}
	text = strings.Trim(text, text[:1])
	if !raw {
		text = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`).Replace(text)
	}
	if _, err := regexp.Compile(text); err != nil {
		return fmt.Sprintf("%s is not a regular expression", literal)
	}
	return ""
}

// TagExpression returns the expression for the tag of a metric as Envoy evaluates it: without a conversion to text around it, which every
// value gets there anyway.
func TagExpression(text string) string {
	text = strings.TrimSpace(text)
	inner, ok := strings.CutPrefix(text, "string(")
	if !ok || !strings.HasSuffix(inner, ")") {
		return text
	}
	if inner = strings.TrimSuffix(inner, ")"); Expression(inner) == "" {
		return inner
	}
	return text
}
