package access

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// normalize returns a path as a connection manager makes it before the filters see it. ok is false if the request is refused.
func normalize(path string, m *hcmv3.HttpConnectionManager) (normal string, ok bool) {
	path, query := cutQuery(path)
	if m.PathWithEscapedSlashesAction == hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD {
		path = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`).Replace(path)
	}
	if m.GetNormalizePath().GetValue() {
		if path, ok = canonical(path); !ok {
			return "", false
		}
	}
	if m.MergeSlashes && strings.Trim(path, "/") == "" && len(path) > 1 {
		path = "//" // nothing but slashes keeps two of them
	} else if m.MergeSlashes {
		for strings.Contains(path, "//") {
			path = strings.ReplaceAll(path, "//", "/")
		}
	}
	return path + query, true
}

// cutQuery splits a path before its query.
func cutQuery(path string) (before, query string) {
	if at := strings.IndexByte(path, '?'); at >= 0 {
		return path[:at], path[at:]
	}
	return path, ""
}

// canonical resolves dots in a path, takes backslashes for slashes, and escapes characters exactly where they must be. ok is false if
// Envoy refuses the path.
func canonical(path string) (normal string, ok bool) {
	if !utf8.ValidString(path) {
		return "", false
	}
	path = withoutParameters(path)
	var out []byte
	for path != "" {
		if len(out) > 0 && out[len(out)-1] == '/' {
			if dots, rest := dotSegment(path); dots > 0 {
				if dots == 2 {
					out = withoutSegment(out)
				}
				path = rest
				continue
			}
		}
		switch c := path[0]; {
		case dotLength(path) > 0:
			out, path = append(out, '.'), path[dotLength(path):]
		case c == '\\':
			out, path = append(out, '/'), path[1:]
		case c == '%':
			switch decoded, ok := escaped(path); {
			case !ok:
				out, path = append(out, lonePercent), path[1:]
			case decoded == 0:
				return "", false
			case unreserved(decoded):
				out, path = append(out, decoded), path[3:]
			default:
				out, path = append(out, path[:3]...), path[3:]
			}
		case mustEscape(c):
			out, path = fmt.Appendf(out, "%%%02X", c), path[1:]
		default:
			out, path = append(out, c), path[1:]
		}
	}
	return string(escapeLone(out)), true
}

// lonePercent marks a percent sign that begins no escape sequence.
const lonePercent = 0

// escapeLone escapes the percent signs that would begin an escape sequence now and did not before. All others stay as they are.
func escapeLone(path []byte) (out []byte) {
	for i, c := range path {
		switch _, begins := escaped("%" + string(path[i+1:min(i+3, len(path))])); {
		case c != lonePercent:
			out = append(out, c)
		case begins:
			out = append(out, "%25"...)
		default:
			out = append(out, '%')
		}
	}
	return out
}

// withoutParameters removes the parameters, which begin with a semicolon, from segments that are dots otherwise.
func withoutParameters(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if before, _, ok := strings.Cut(s, ";"); ok && (before == "." || before == "..") {
			segments[i] = before
		}
	}
	return strings.Join(segments, "/")
}

// dotLength is the length of the dot that a text begins with, escaped or not; 0 if it begins with another character.
func dotLength(s string) int {
	switch {
	case strings.HasPrefix(s, "."):
		return 1
	case strings.HasPrefix(s, "%2e"), strings.HasPrefix(s, "%2E"):
		return 3
	}
	return 0
}

// dotSegment takes a segment of one or two dots from the beginning of a text, with the slash behind it. dots is 0 if there is none.
func dotSegment(s string) (dots int, rest string) {
	rest = s
	for dots < 2 && dotLength(rest) > 0 {
		rest = rest[dotLength(rest):]
		dots++
	}
	switch {
	case dots == 0 || rest != "" && rest[0] != '/' && rest[0] != '\\':
		return 0, s
	case rest == "":
		return dots, ""
	}
	return dots, rest[1:]
}

// withoutSegment removes the last segment from a path that ends with a slash.
func withoutSegment(path []byte) []byte {
	if len(path) == 1 {
		return path
	}
	return path[:strings.LastIndexByte(string(path[:len(path)-1]), '/')+1]
}

// escaped returns the character of the escape sequence that a text begins with.
func escaped(s string) (decoded byte, ok bool) {
	if len(s) < 3 {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(n), err == nil
}

// unreserved are the characters that are never escaped.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '~'
}

// mustEscape are the characters that are always escaped.
func mustEscape(c byte) bool {
	return c <= ' ' || c >= 0x7f || strings.IndexByte("\"#<>?^`{|}", c) >= 0
}
