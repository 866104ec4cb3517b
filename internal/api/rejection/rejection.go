// Package rejection finds out why Envoy rejects a resource, and the object and the field that the reason is about.
//
// Envoy's error text has the cause behind, or before, a dump of the whole resource, and is cut off after some kilobytes. So the cause is
// taken out of the text; if it was cut off, the validation that was generated for the resource finds the field again. The object is the
// one whose spec has the value that the cause is about.
//
// Everything here is a pure function. The package starts no goroutines.
package rejection

import (
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api"
)

const (
	// maxCause is the largest length of a cause in bytes. A longer one is shortened.
	maxCause = 400
	// constraint begins a message of Envoy about a field that breaks a rule of its API.
	constraint = "Proto constraint validation failed ("
	// causedBy is between an error and the more precise one below it.
	causedBy = " | caused by "
	// dump begins a dump of a message; letters follow by which Envoy marks the form of the text.
	dump = "goo.gle/debug"
	// cutMark ends a text that was cut off.
	cutMark = "...(truncated)"
)

// Finding describes rejected content: the field at fault, and the objects that it is made of. It does not depend on the proxy.
type Finding struct {
	// Objects are the objects that the content is made of, sorted.
	Objects []api.Key
	// Object is the object that has the rejected value, and Field the path of the value in its document. Object is zero if several objects
	// could have it, or none.
	Object api.Key
	Field  string
	// Violation is the first rule of Envoy's API that the content breaks; empty if it breaks none.
	Violation string
}

// Equal reports whether two findings are the same.
func (f Finding) Equal(o Finding) bool {
	return f.Object == o.Object && f.Field == o.Field && f.Violation == o.Violation && slices.Equal(f.Objects, o.Objects)
}

// Find finds the object and the field that a rejection is about. reason is Envoy's error text, and content the rejected message;
// nil if it is not known. objects are the objects that the content is made of.
func Find(reason string, content proto.Message, objects []*api.Object) Finding {
	var f Finding
	for _, o := range objects {
		f.Objects = append(f.Objects, o.Key)
	}
	violation, value := violationOf(content)
	f.Violation = violation
	needles := quoted(Cause(reason, violation))
	if value != "" {
		needles = append([]string{value}, needles...)
	}
	f.Object, f.Field = holder(needles, objects)
	return f
}

// Cause returns the cause in Envoy's error text, as one line. violation replaces a cause that was cut off.
func Cause(reason, violation string) string {
	text := strings.TrimSpace(reason)
	if at := strings.Index(text, constraint); at >= 0 {
		if inner, complete := parenthesised(text[at+len(constraint):]); complete {
			return oneLine(path(strings.Split(inner, causedBy)))
		}
		text = text[:at] // the rest was cut off
		return oneLine(instead(text, violation))
	}
	at := strings.Index(text, dump)
	if at < 0 {
		if strings.HasSuffix(text, cutMark) && violation != "" {
			return oneLine(violation)
		}
		return oneLine(text)
	}
	// The cause is behind the dump, whose last line closes a message.
	before, after := strings.TrimSuffix(strings.TrimSpace(text[:at]), ":"), ""
	if end := strings.LastIndex(text, "\n: "); end > at {
		after = strings.TrimSpace(text[end+len("\n: "):])
	}
	switch {
	case after == "":
		return oneLine(instead(before, violation))
	case before == "":
		return oneLine(after)
	}
	return oneLine(before + ": " + after)
}

// instead is the cause where Envoy's was cut off behind a text.
func instead(before, violation string) string {
	if violation != "" {
		return violation
	}
	if at := strings.Index(before, dump); at >= 0 {
		before = before[:at]
	}
	const lost = "the cause was cut off from the message of the proxy; the log of its Envoy has it"
	if before = strings.Trim(before, " :\n"); before != "" {
		return before + ": " + lost
	}
	return lost
}

// parenthesised returns the text up to the parenthesis that closes it. complete is false if there is none.
func parenthesised(text string) (inner string, complete bool) {
	depth := 1
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return text[:i], true
			}
		}
	}
	return text, false
}

// path joins nested errors, such as "VirtualHostValidationError.Routes[0]: embedded message failed validation", to one path with the
// innermost reason.
func path(errors []string) string {
	var fields []string
	reason := ""
	for _, one := range errors {
		at, why, _ := strings.Cut(one, ": ")
		if _, field, ok := strings.Cut(at, "ValidationError."); ok {
			at = field
		}
		fields, reason = append(fields, at), why
	}
	return strings.Join(fields, ".") + ": " + reason
}

// oneLine returns a text as one line of bounded length.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxCause {
		return text
	}
	end := maxCause
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// quoted returns the texts in quotation marks.
func quoted(text string) (list []string) {
	for _, mark := range []string{"'", `"`} {
		parts := strings.Split(text, mark)
		for i := 1; i+1 < len(parts); i += 2 {
			if parts[i] != "" {
				list = append(list, parts[i])
			}
		}
	}
	return list
}
