package syntax

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Expression checks the grammar of an expression in CEL, the Common Expression Language. It checks no names and no types, which
// depend on the evaluator of the expression.
func Expression(s string) string {
	p := &expressionParser{text: s}
	p.next()
	p.expression(0)
	if p.wrong == "" && p.token != endToken {
		p.fail("an operator is missing before it")
	}
	if p.wrong == "" {
		return ""
	}
	return fmt.Sprintf("%s is not an expression of CEL: %s", document.Quote(s), p.wrong)
}

// maxExpression is how deep an expression may be nested.
const maxExpression = 100

type expressionToken uint8

const (
	endToken expressionToken = iota
	nameToken
	literalToken
	signToken // operators and brackets
)

// expressionParser reads an expression by recursive descent. It looks at one token at a time, and stops at the first mistake.
type expressionParser struct {
	text  string
	at    int // the end of the present token
	token expressionToken
	word  string // the present token
	wrong string // the first mistake
	plain bool   // the member that was read last is a single name
	field bool   // the member that was read last ends with the name of a field
	// about is called for each call with its arguments, or with the type of a message; nil for nothing.
	about func(call expressionCall)
	// names is called for the name of each value; nil for nothing.
	names func(name string)
}

// fail notes a mistake at the present token.
func (p *expressionParser) fail(reason string) {
	if p.wrong == "" {
		where := "at the end"
		if p.token != endToken {
			where = "at " + document.Quote(p.word)
		}
		p.wrong = where + ": " + reason
	}
	p.token, p.at = endToken, len(p.text)
}

// is reports whether the present token is one of some signs.
func (p *expressionParser) is(signs ...string) bool {
	return p.token == signToken && slices.Contains(signs, p.word) || p.token == nameToken && p.word == "in" && slices.Contains(signs, "in")
}

// take skips the present token if it is a sign.
func (p *expressionParser) take(sign string) bool {
	if !p.is(sign) {
		return false
	}
	p.next()
	return true
}

func (p *expressionParser) need(sign string) {
	if !p.take(sign) {
		p.fail(sign + " is missing before it")
	}
}

func (p *expressionParser) expression(depth int) {
	if depth > maxExpression {
		p.fail("it is nested too deep")
		return
	}
	p.binary(0, depth)
	if p.take("?") {
		p.binary(0, depth)
		p.need(":")
		p.expression(depth + 1)
		p.plain, p.field = false, false
	}
}

// binaryOperators are the operators between two operands, beginning with the ones that bind least.
func binaryOperators(level int) []string {
	return [][]string{{"||"}, {"&&"}, {"<", "<=", ">=", ">", "==", "!=", "in"}, {"+", "-"}, {"*", "/", "%"}}[level]
}

func (p *expressionParser) binary(level, depth int) {
	const levels = 5
	if level == levels {
		p.unary(depth)
		return
	}
	p.binary(level+1, depth)
	for p.is(binaryOperators(level)...) {
		p.next()
		p.binary(level+1, depth)
		p.plain, p.field = false, false
	}
}

func (p *expressionParser) unary(depth int) {
	for _, sign := range []string{"!", "-"} {
		if !p.is(sign) {
			continue
		}
		for p.take(sign) {
		}
		p.member(depth)
		p.plain, p.field = false, false
		return
	}
	p.member(depth)
}

// member reads a primary expression and the fields, calls and indexes that follow it.
func (p *expressionParser) member(depth int) {
	p.primary(depth)
	for p.wrong == "" {
		switch {
		case p.take("."):
			name := p.word
			if p.token != nameToken || isKeyword(name) {
				p.fail("the name of a field is missing before it")
				return
			}
			p.next()
			p.plain, p.field = false, true
			if p.take("(") {
				p.call(name, true, depth)
				p.field = false
			} else if p.is("{") {
				p.fields(depth)
			}
		case p.take("["):
			p.expression(depth + 1)
			p.need("]")
			p.plain, p.field = false, false
		default:
			return
		}
	}
}

func (p *expressionParser) primary(depth int) {
	p.plain, p.field = false, false
	if p.is(".") {
		p.next()
		if p.token != nameToken {
			p.fail("a name is missing before it")
			return
		}
	}
	switch {
	case p.token == literalToken:
		p.next()
	case p.token == nameToken:
		p.named(depth)
	case p.take("("):
		p.expression(depth + 1)
		p.need(")")
		p.plain, p.field = false, false
	case p.take("["):
		p.list("]", func() { p.expression(depth + 1) })
	case p.take("{"):
		p.list("}", func() {
			p.expression(depth + 1)
			p.need(":")
			p.expression(depth + 1)
		})
	default:
		p.fail("an operand is missing before it")
	}
}

// named reads a name, a call or a message.
func (p *expressionParser) named(depth int) {
	name := p.word
	switch {
	case slices.Contains([]string{"true", "false", "null"}, name):
		p.next()
		return
	case isKeyword(name) || isReserved(name):
		p.fail("the name is reserved")
		return
	}
	p.next()
	switch {
	case p.take("("):
		p.call(name, false, depth)
	case p.is("{"):
		p.fields(depth)
	default:
		p.plain = true
		if p.names != nil {
			p.names(name)
		}
	}
}

// fields reads the fields of a message.
func (p *expressionParser) fields(depth int) {
	if p.about != nil {
		p.about(expressionCall{message: true})
	}
	p.need("{")
	p.list("}", func() {
		if p.token != nameToken {
			p.fail("the name of a field is missing before it")
			return
		}
		p.next()
		p.need(":")
		p.expression(depth + 1)
	})
	p.plain, p.field = false, false
}

// list reads elements between commas and the sign that ends them. A comma may follow the last element.
func (p *expressionParser) list(end string, element func()) {
	for p.wrong == "" && !p.is(end) {
		element()
		if !p.take(",") {
			break
		}
	}
	p.need(end)
	p.plain, p.field = false, false
}

// call reads the arguments of a call, and checks the arguments of macros.
func (p *expressionParser) call(name string, method bool, depth int) {
	var plain, field []bool
	last, end := p.at, p.at
	for p.wrong == "" && !p.is(")") {
		last = p.at - len(p.word)
		p.expression(depth + 1)
		end = p.at - len(p.word)
		plain, field = append(plain, p.plain), append(field, p.field)
		if !p.take(",") {
			break
		}
		if p.is(")") {
			p.fail("an argument is missing before it")
		}
	}
	p.need(")")
	if p.about != nil && p.wrong == "" {
		p.about(expressionCall{name: name, method: method, arguments: len(plain), last: strings.TrimSpace(p.text[last:min(end, len(p.text))])})
	}
	switch {
	case !method && name == "has" && len(field) == 1 && !field[0]:
		p.fail("has() needs a field, such as has(request.host)")
	case method && slices.Contains([]string{"all", "exists", "exists_one", "map", "filter"}, name) && len(plain) >= 2 && !plain[0]:
		p.fail(name + "() needs the name of a variable first")
	}
	p.plain, p.field = false, false
}

func isKeyword(name string) bool {
	return slices.Contains([]string{"in", "true", "false", "null"}, name)
}

func isReserved(name string) bool {
	return slices.Contains(strings.Fields("as break const continue else for function if import let loop package namespace return var void while"), name)
}

// next reads the next token.
func (p *expressionParser) next() {
	if p.wrong != "" {
		return
	}
	p.space()
	begin := p.at
	if begin == len(p.text) {
		p.token, p.word = endToken, ""
		return
	}
	rest := p.text[begin:]
	if n := quotedLen(rest); n != 0 {
		if n < 0 {
			p.token, p.word = literalToken, rest
			p.fail("the text does not end, or has an unknown escape")
			return
		}
		p.token, p.at = literalToken, begin+n
	} else if n := numberLen(rest); n > 0 {
		negative := p.token == signToken && p.word == "-"
		p.token, p.at = literalToken, begin+n
		if p.word = rest[:n]; !fits(p.word, negative) {
			p.fail("the number has more than 64 bits")
		}
	} else if n := wordLen(rest); n > 0 {
		p.token, p.at = nameToken, begin+n
	} else {
		p.sign(rest)
	}
	p.word = p.text[begin:min(p.at, len(p.text))]
}

// space skips blanks and comments.
func (p *expressionParser) space() {
	for p.at < len(p.text) {
		switch rest := p.text[p.at:]; {
		case strings.ContainsRune(" \t\r\n\f", rune(rest[0])):
			p.at++
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			p.at += end
		default:
			return
		}
	}
}

func (p *expressionParser) sign(rest string) {
	for _, sign := range []string{"||", "&&", "<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ",", ".", "(", ")", "[", "]", "{", "}"} {
		if strings.HasPrefix(rest, sign) {
			p.token, p.at = signToken, p.at+len(sign)
			return
		}
	}
	_, size := utf8.DecodeRuneInString(rest)
	p.token, p.word = signToken, rest[:size]
	p.fail("it has no meaning here")
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// wordLen returns the length of the name that s begins with; 0 if it begins with none.
func wordLen(s string) int {
	n := 0
	for n < len(s) && (isLetter(s[n]) || n > 0 && isDigit(s[n])) {
		n++
	}
	return n
}

// numberLen returns the length of the number that s begins with; 0 if it begins with none.
func numberLen(s string) int {
	digits := func(i int) int {
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		return i
	}
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		n := 2
		for n < len(s) && strings.ContainsRune("0123456789abcdefABCDEF", rune(s[n])) {
			n++
		}
		if n > 2 {
			return unsigned(s, n)
		}
	}
	n := digits(0)
	if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
		return exponent(s, digits(n+1), digits)
	}
	if n == 0 {
		return 0
	}
	if e := exponent(s, n, digits); e > n {
		return e
	}
	return unsigned(s, n)
}

// fits reports whether the 64 bits of CEL's numbers hold a number. negative is true behind a minus.
func fits(s string, negative bool) bool {
	digits, base := s, 10
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		digits, base = s[2:], 16
	} else if strings.ContainsAny(s, ".eE") {
		_, err := strconv.ParseFloat(s, 64)
		return err == nil
	}
	plain := strings.TrimRight(digits, "uU")
	n, err := strconv.ParseUint(plain, base, 64)
	return err == nil && (plain != digits || n <= math.MaxInt64 || negative && n == math.MaxInt64+1)
}

func unsigned(s string, n int) int {
	if n < len(s) && (s[n] == 'u' || s[n] == 'U') {
		n++
	}
	return n
}

// exponent returns the end of the exponent at n, or n.
func exponent(s string, n int, digits func(int) int) int {
	if n >= len(s) || s[n] != 'e' && s[n] != 'E' {
		return n
	}
	i := n + 1
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	if end := digits(i); end > i {
		return end
	}
	return n
}

// quotedLen returns the length of the quoted text that s begins with; 0 if it begins with none, and -1 if the text is malformed.
func quotedLen(s string) int {
	begin, raw := 0, false
	for begin < len(s) && begin < 2 && strings.ContainsRune("rRbB", rune(s[begin])) {
		raw = raw || s[begin] == 'r' || s[begin] == 'R'
		begin++
	}
	if begin == len(s) || s[begin] != '"' && s[begin] != '\'' {
		return 0
	}
	quote := s[begin : begin+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s[begin:], triple) {
		quote = triple
	}
	for i := begin + len(quote); i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		case len(quote) == 1 && (s[i] == '\n' || s[i] == '\r'):
			return -1
		case s[i] == '\\' && !raw:
			n := escapeLen(s[i+1:])
			if n == 0 {
				return -1
			}
			i += n
		}
	}
	return -1
}

// escapeLen returns the length of the escape behind a backslash; 0 if there is none.
func escapeLen(s string) int {
	if s == "" {
		return 0
	}
	of := func(n int, digits string) int {
		if len(s) < n+1 || strings.Trim(s[1:n+1], digits) != "" {
			return 0
		}
		return n + 1
	}
	const hex, octal = "0123456789abcdefABCDEF", "01234567"
	switch s[0] {
	case 'a', 'b', 'f', 'n', 'r', 't', 'v', '"', '\'', '\\', '?', '`':
		return 1
	case 'x', 'X':
		return of(2, hex)
	case 'u':
		return of(4, hex)
	case 'U':
		return of(8, hex)
	case '0', '1', '2', '3':
		return of(2, octal)
	}
	return 0
}
