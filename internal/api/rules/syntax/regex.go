package syntax

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/pilotmesh/pilot/internal/api/document"
)

const (
	maxRegex   = 1024 // bytes of a regular expression
	maxProgram = 10000
	maxByte    = 0xff // Envoy matches bytes: a character beyond is several of them
)

// Regex checks a regular expression of RE2's syntax. Envoy compiles it once per route: its size is bounded.
func Regex(s string) string {
	if s == "" {
		return "an empty regular expression matches nothing of use; write .* for everything"
	}
	if len(s) > maxRegex {
		return fmt.Sprintf("the regular expression has %d bytes, the limit is %d; split it over several matches", len(s), maxRegex)
	}
	re, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return Refused(err)
	}
	if reason := checkClasses(s); reason != "" {
		return reason
	}
	if size := programSize(re); size > maxProgram {
		return fmt.Sprintf("the regular expression compiles to about %d steps, the limit is %d; lower its repetitions", size, maxProgram)
	}
	if _, err := regexp.Compile(s); err != nil {
		return Refused(err)
	}
	return ""
}

// Refused says why an expression is none of RE2's, after the error of package regexp.
func Refused(err error) string {
	reason := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	var e *syntax.Error
	if errors.As(err, &e) {
		if construct, instead := foreign(e); construct != "" {
			reason = fmt.Sprintf("RE2 has no %s, because it matches in a time that grows with the length of the text only; %s", construct, instead)
		}
	}
	return "not an RE2 regular expression: " + reason
}

// foreign names the construct of other kinds of regular expressions at which RE2 stopped, and says what to write instead; empty if it stopped at
// something else.
func foreign(e *syntax.Error) (construct, instead string) {
	const without = "write a rule before this one for the texts that must not match; for headers use withoutHeaders"
	begins := func(list ...string) bool {
		return slices.ContainsFunc(list, func(text string) bool { return strings.HasPrefix(e.Expr, text) })
	}
	switch {
	case begins("(?!"):
		return "look-ahead (?!...)", without
	case begins("(?<!"):
		return "look-behind (?<!...)", without
	case begins("(?="):
		return "look-ahead (?=...)", "match the whole text, and end the expression with the text behind"
	case begins("(?<="):
		return "look-behind (?<=...)", "match the whole text, and begin the expression with the text before"
	case e.Code == syntax.ErrInvalidEscape && len(e.Expr) == 2 && e.Expr[1] >= '1' && e.Expr[1] <= '9', begins(`\k`, `\g`), e.Expr == "(?P":
		return "back-references (" + e.Expr + ")", "write the repeated text out, as one alternative for each value: (a-a|b-b)"
	case begins("(?>"):
		return "atomic groups (?>...)", "write (?:...): RE2 never goes back"
	case e.Code == syntax.ErrInvalidRepeatOp && strings.HasSuffix(e.Expr, "+"):
		return "possessive repetitions (" + e.Expr + ")", "leave out the last +: RE2 never goes back"
	case begins("(?("):
		return "conditions (?(...)...)", "write the alternatives out: (a|b)"
	}
	return "", ""
}

// programSize estimates how many instructions the expression compiles to, without compiling it.
func programSize(re *syntax.Regexp) int {
	size := 1
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size += programSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return size
}

// checkClasses refuses syntax that Go has and Envoy does not have: long names of classes of characters, in any case of
// letters, and characters by numbers that do not fit a byte.
func checkClasses(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			continue
		}
		i++
		arg, end := argument(s, i+1)
		switch s[i] {
		case 'Q': // quoted text has no class
			if end := strings.Index(s[i:], `\E`); end >= 0 {
				i += end + 1
				continue
			}
			return ""
		case 'p', 'P':
			if name := strings.TrimPrefix(arg, "^"); !isClass(name) {
				return fmt.Sprintf("Envoy knows no class of characters %s; use a category like L or Lu, or a script like Greek", document.Quote(name))
			}
			i = end
		case 'x':
			if n, err := strconv.ParseUint(arg, 16, 32); err == nil && n > maxByte {
				return fmt.Sprintf(`\x{%s} does not fit a byte, which is what Envoy matches; write the character itself`, arg)
			}
		}
	}
	return ""
}

// argument returns the argument of an escape before i: the text in braces there, else one character; end is its last byte.
func argument(s string, i int) (arg string, end int) {
	if i >= len(s) {
		return "", i
	}
	if length := strings.IndexByte(s[i:], '}'); s[i] == '{' && length > 0 {
		return s[i+1 : i+length], i + length
	}
	return s[i : i+1], i
}

// isClass reports whether RE2 knows a class: a general category by its one or two letters, or a script.
func isClass(name string) bool {
	if name == "Any" || unicode.Scripts[name] != nil {
		return true
	}
	return len(name) <= 2 && name != "LC" && name != "Cn" && unicode.Categories[name] != nil
}

// Substitution checks the text that replaces the match of a regular expression: \1 is its first group,
// \\ a backslash.
func Substitution(text, expression string) string {
	re, err := regexp.Compile(expression)
	if err != nil {
		return "" // reported for the expression
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		switch {
		case i == len(text) || text[i] != '\\' && (text[i] < '0' || text[i] > '9'):
			return `a backslash stands before the number of a group or another backslash`
		case text[i] != '\\' && int(text[i]-'0') > re.NumSubexp():
			return fmt.Sprintf(`\%c is no group of the match, which has %d`, text[i], re.NumSubexp())
		}
	}
	return ""
}
