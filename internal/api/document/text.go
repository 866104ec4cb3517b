package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of documents. They bound the memory and time that any document can take.
const (
	// MaxDocument is the maximum size of a document in bytes. A document with the largest body of a direct response, encoded as
	// bytes, is smaller.
	MaxDocument = 2 << 20

	maxDepth  = 64      // nesting of lists and mappings
	maxValues = 1 << 18 // scalars, lists and mappings of one document with all aliases expanded
)

// Text is the text of one document of a file.
type Text struct {
	Data []byte
	// Before is the number of lines of the file before Data.
	Before int
}

// Split splits a file into documents without parsing it, so a syntax error affects one document only. This is safe, because in YAML
// "---" and "..." at the start of a line end a document even inside a quoted or block scalar.
func Split(data []byte) []Text {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var docs []Text
	start, first, line := 0, 0, 0
	cut := func(end int) {
		if t := (Text{Data: data[start:end], Before: first}); t.hasContent() {
			docs = append(docs, t)
		}
	}
	for pos := 0; pos < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		if pos > start && isMarker(data[pos:next]) {
			cut(pos)
			start, first = pos, line
		}
		pos = next
	}
	cut(len(data))
	return docs
}

func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0
}

// hasContent reports whether a text has more than comments, directives and document markers.
func (t Text) hasContent() bool {
	for rest := t.Data; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		if isMarker(line) {
			line = line[3:]
		} else if bytes.HasPrefix(line, []byte("%")) {
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

// SyntaxError is why and in which line a document cannot be parsed.
type SyntaxError struct {
	Line   int // in the file
	Reason string
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Parse parses the document. It returns nil without an error if the document has no content.
func (t Text) Parse() (v *Value, err error) {
	if len(t.Data) > MaxDocument {
		return nil, &SyntaxError{t.Before + 1, fmt.Sprintf(
			"the document has %d bytes, the limit is %d; split the object", len(t.Data), MaxDocument)}
	}
	if isJSON(t.Data) {
		return parseJSON(t)
	}
	root, err := t.root()
	if err != nil || root == nil {
		return nil, err
	}
	g := grower{offset: t.Before}
	return g.grow(root, 0)
}

// root returns the document's root node, nil if there is none.
func (t Text) root() (root *yaml.Node, err error) {
	// A panic of the YAML library must affect this document only.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, &SyntaxError{t.Before + 1, fmt.Sprintf("the YAML parser failed: %v", r)}
		}
	}()
	// The text may begin with the "..." of the document before it, which the parser would take for an empty document.
	data := t.Data
	if bytes.HasPrefix(data, []byte("...")) {
		data = append([]byte("#  "), data[3:]...)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, t.describe(err)
	}
	if err := dec.Decode(&more); err == nil {
		return nil, &SyntaxError{t.Before + more.Line, "a second document begins here; separate documents with ---"}
	} else if !errors.Is(err, io.EOF) {
		e := t.describe(err)
		if strings.Contains(e.Reason, "expected <document start>") {
			e.Reason = "something follows the end of the document; separate documents with ---"
		}
		return nil, e
	}
	if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

var yamlErrorLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// describe turns an error of the YAML library into one with a line of the file.
func (t Text) describe(err error) *SyntaxError {
	reason := err.Error()
	line := t.Before + 1
	if m := yamlErrorLine.FindStringSubmatch(reason); m != nil {
		if n, convErr := strconv.Atoi(m[1]); convErr == nil {
			line = t.Before + n
		}
		reason = reason[len(m[0]):]
		// Of its scanner's errors the library counts lines from 1, of its parser's from 0.
		for _, parser := range []string{"<", "node content", "'-' indicator", "key", "',' or"} {
			if strings.HasPrefix(reason, "did not find expected "+parser) {
				line++
			}
		}
	}
	// The library reports something that is missing at the end in the line after the end.
	lines := bytes.Count(bytes.TrimRight(t.Data, "\n"), []byte("\n")) + 1
	line = min(line, t.Before+lines)
	if strings.Contains(reason, "found character that cannot start any token") && t.indentedByTab(line-t.Before) {
		return &SyntaxError{line, "not well-formed YAML: the line begins with a tab, and YAML indents by spaces; write spaces"}
	}
	return &SyntaxError{line, "not well-formed YAML: " + strings.TrimPrefix(reason, "yaml: ")}
}

// indentedByTab reports whether a line, counted from 1, has a tab before its text.
func (t Text) indentedByTab(n int) bool {
	lines := bytes.Split(t.Data, []byte("\n"))
	if n < 1 || n > len(lines) {
		return false
	}
	line := lines[n-1]
	return bytes.ContainsRune(line[:len(line)-len(bytes.TrimLeft(line, " \t"))], '\t')
}
