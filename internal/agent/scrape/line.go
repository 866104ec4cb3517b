package scrape

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a line.
type kind int

const (
	nothing kind = iota // an empty line or a comment
	help
	typ
	unit
	end // the end of an OpenMetrics exposition
	sample
)

// line is one line of an exposition, in the Prometheus text format or in OpenMetrics. Its slices are parts of the text that was parsed.
type line struct {
	kind kind
	name []byte
	text []byte // of metadata
	// Of a sample.
	labels   []label
	braces   bool // it has braces, in which there may be no label
	value    []byte
	number   float64
	time     int64 // milliseconds
	timed    bool
	exemplar *exemplar
}

type label struct{ name, value []byte } // the value as it is written, with its escapes

type exemplar struct {
	labels      []label
	value, time []byte // the time is empty if there is none
}

// errLine reports a line that is not valid in the format.
var errLine = errors.New("not a line of the format")

// Limits of a sample: its labels, and its time in milliseconds, which is exact as a number of seconds as well.
const (
	maxLabels = 256
	maxTime   = 1e15
)

// parseLine parses a line without its end. labels is room for labels that is used again.
func parseLine(text []byte, openMetrics bool, labels []label) (line, error) {
	text = trim(text)
	if len(text) == 0 {
		return line{}, nil
	}
	if text[0] == '#' {
		return parseComment(trim(text[1:]))
	}
	l := line{kind: sample}
	if l.name, text = cutName(text, true); len(l.name) == 0 {
		return l, errLine
	}
	l.name = meshName(l.name)
	if len(text) > 0 && text[0] != '{' && text[0] != ' ' && text[0] != '\t' {
		return l, errLine
	}
	text = trim(text)
	l.braces = len(text) > 0 && text[0] == '{'
	var err error
	if l.labels, text, err = cutLabels(text, labels); err != nil {
		return l, err
	}
	if l.value, l.number, text, err = cutNumber(text); err != nil {
		return l, err
	}
	if !openMetrics {
		return l.withTime(text)
	}
	return l.withExemplar(text)
}

func parseComment(text []byte) (line, error) {
	if string(text) == "EOF" {
		return line{kind: end}, nil
	}
	word, rest := cutWord(text)
	var k kind
	switch string(word) {
	case "HELP":
		k = help
	case "TYPE":
		k = typ
	case "UNIT":
		k = unit
	default:
		return line{}, nil
	}
	l := line{kind: k}
	if l.name, rest = cutName(rest, true); len(l.name) == 0 || len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return l, errLine
	}
	l.name = meshName(l.name)
	l.text = trim(rest)
	if !utf8.Valid(l.text) || bytes.IndexByte(l.text, 0) >= 0 || k == help && !escapesValid(l.text) {
		return l, errLine
	}
	return l, nil
}

// withTime parses the end of a line of the Prometheus text format: nothing, or milliseconds.
func (l line) withTime(text []byte) (line, error) {
	if len(text) == 0 {
		return l, nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n > maxTime || n < -maxTime {
		return l, errLine
	}
	l.time, l.timed = n, true
	return l, nil
}

// withExemplar parses the end of a line of OpenMetrics: seconds and an exemplar, each optional.
func (l line) withExemplar(text []byte) (line, error) {
	if len(text) > 0 && text[0] != '#' {
		var seconds float64
		var err error
		if _, seconds, text, err = cutNumber(text); err != nil || math.IsNaN(seconds) || math.Abs(seconds) > maxTime/1000 {
			return l, errLine
		}
		l.time, l.timed = int64(math.Round(seconds*1000)), true
	}
	if len(text) == 0 {
		return l, nil
	}
	if text[0] != '#' {
		return l, errLine
	}
	e := &exemplar{}
	text = trim(text[1:])
	if len(text) == 0 || text[0] != '{' {
		return l, errLine
	}
	var err error
	if e.labels, text, err = cutLabels(text, nil); err != nil {
		return l, err
	}
	if e.value, _, text, err = cutNumber(text); err != nil {
		return l, err
	}
	if len(text) > 0 {
		var seconds float64
		if e.time, seconds, text, err = cutNumber(text); err != nil || len(text) > 0 || math.IsNaN(seconds) || math.IsInf(seconds, 0) {
			return l, errLine
		}
	}
	l.exemplar = e
	return l, nil
}

// cutLabels parses labels in braces, if there are any.
func cutLabels(text []byte, into []label) (labels []label, rest []byte, err error) {
	labels = into[:0]
	if len(text) == 0 || text[0] != '{' {
		return labels, text, nil
	}
	text = trim(text[1:])
	for len(text) > 0 && text[0] != '}' {
		var l label
		if l.name, text = cutName(text, false); len(l.name) == 0 || string(l.name) == "__name__" || len(labels) == maxLabels {
			return nil, nil, errLine
		}
		text = trim(text)
		if len(text) == 0 || text[0] != '=' {
			return nil, nil, errLine
		}
		if l.value, text, err = cutQuoted(trim(text[1:])); err != nil {
			return nil, nil, err
		}
		for _, other := range labels {
			if bytes.Equal(other.name, l.name) {
				return nil, nil, errLine
			}
		}
		labels = append(labels, l)
		text = trim(text)
		if len(text) > 0 && text[0] == ',' {
			text = trim(text[1:])
		} else if len(text) == 0 || text[0] != '}' {
			return nil, nil, errLine
		}
	}
	if len(text) == 0 {
		return nil, nil, errLine
	}
	return labels, trim(text[1:]), nil
}

// cutQuoted parses a value in quotes, and returns it with its escapes.
func cutQuoted(text []byte) (value, rest []byte, err error) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, errLine
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			value = text[1:i]
			if !utf8.Valid(value) || !escapesValid(value) || bytes.IndexByte(value, 0) >= 0 {
				return nil, nil, errLine
			}
			return value, text[i+1:], nil
		}
	}
	return nil, nil, errLine
}

// escapesValid reports whether a text has only the escapes that the formats know.
func escapesValid(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if i++; i == len(text) || text[i] != '\\' && text[i] != 'n' && text[i] != '"' {
			return false
		}
	}
	return true
}

// cutName parses the name of a metric or, without colons, the name of a label.
func cutName(text []byte, colon bool) (name, rest []byte) {
	i := 0
	for i < len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || colon && c == ':' || i > 0 && c >= '0' && c <= '9' {
			i++
			continue
		}
		break
	}
	return text[:i], text[i:]
}

// cutNumber parses a decimal number, NaN or an infinity.
func cutNumber(text []byte) (number []byte, value float64, rest []byte, err error) {
	number, rest = cutWord(text)
	s := string(number)
	if strings.ContainsAny(s, "pPxX_") {
		return nil, 0, nil, errLine
	}
	if value, err = strconv.ParseFloat(s, 64); err != nil {
		return nil, 0, nil, errLine
	}
	return number, value, rest, nil
}

func cutWord(text []byte) (word, rest []byte) {
	if i := bytes.IndexAny(text, " \t"); i >= 0 {
		return text[:i], trim(text[i:])
	}
	return text, nil
}

// trim removes blanks around a text. A carriage return at the end of a line counts as a blank.
func trim(text []byte) []byte { return bytes.Trim(text, " \t\r") }

// meshName returns the name of a metric of the mesh without the prefix that Envoy gives to all its metrics.
func meshName(name []byte) []byte {
	if bytes.HasPrefix(name, []byte("envoy_istio_")) {
		return name[len("envoy_"):]
	}
	return name
}
