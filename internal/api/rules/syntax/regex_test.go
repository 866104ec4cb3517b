package syntax_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// TestForeignExpressions: a construct that other kinds of regular expressions have and RE2 has not is named, with what to write instead; every other
// fault has the words of RE2.
func TestForeignExpressions(t *testing.T) {
	for expression, want := range map[string]string{
		`/(?!admin).*`:   "RE2 has no look-ahead (?!...), because it matches in a time that grows with the length of the text only; write a rule before this one",
		`.*(?<!\.png)`:   "no look-behind (?<!...), because",
		`/a(?=/b)`:       "no look-ahead (?=...), because it matches in a time that grows with the length of the text only; match the whole text, and end",
		`(?<=/a)/b`:      "no look-behind (?<=...), because",
		`(?<=a`:          "no look-behind (?<=...), because",
		`(a|b)-\1`:       `no back-references (\1), because it matches in a time that grows with the length of the text only; write the repeated text out`,
		`(?P<n>a)\k<n>`:  `no back-references (\k), because`,
		`(?P<n>a)(?P=n)`: "no back-references (",
		`(?>a+)b`:        "no atomic groups (?>...), because",
		`a++b`:           "no possessive repetitions (++), because",
		`a*+b`:           "no possessive repetitions (*+), because",
		`(?(1)a|b)`:      "no conditions (?(...)...), because",
		`a**`:            "invalid nested repetition operator: `**`",
		`(`:              "missing closing ): `(`",
		`\y`:             "invalid escape sequence: `\\y`",
		`(?<1n>a)`:       "",
		`(?P<1n>a)(?<n>`: "missing closing )",
		`(?:a)(?i:b)`:    "",
	} {
		got := syntax.Regex(expression)
		if (got == "") != (want == "") || !strings.Contains(got, want) || got != "" && !strings.HasPrefix(got, "not an RE2 regular expression: ") {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}
