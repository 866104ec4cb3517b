package scrape

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Limits of the answer of one target.
const (
	maxLine   = 64 << 10
	maxBytes  = 64 << 20 // of an application
	maxEnvoy  = 1 << 30  // of Envoy, whose 5,000 series of histograms have more than 64 MiB
	maxNames  = 100_000  // different metrics of all targets
	maxTyping = 64       // length of a type or a unit
)

// merger joins expositions to one, in the Prometheus text format or in OpenMetrics. An invalid line is left out, so
// that it does not make the whole answer unreadable. Metadata of a metric that an earlier exposition has described is left out too.
//
// It keeps only the names of metrics and the metadata of one of them.
type merger struct {
	out         *bufio.Writer
	openMetrics bool
	// kinds are the types of the families that have been written. Metrics without a type count as untyped.
	kinds map[string]string
	next  metadata
	row   []byte
	room  []label
	// names is how many names kinds may have, and limit how many bytes one exposition.
	names int
	limit int64
}

// metadata describes the next family. It is written before the first sample, because the type of a family decides its name.
type metadata struct {
	name, help, typ, unit string
	helped                bool
}

// report is the result of one exposition.
type report struct {
	bytes   int64
	samples int
	invalid int                // lines that are not valid
	lost    map[string]float64 // see losses
	err     error              // why reading stopped
}

var (
	errTooMany = fmt.Errorf("all targets together have more than %d metrics", maxNames)
	errNoEnd   = errors.New("it ends without # EOF, so it is incomplete")
	errInvalid = errors.New("it has lines that are not metrics")
	errWriting = errors.New("writing the answer")
)

func newMerger(w io.Writer, openMetrics bool) *merger {
	return &merger{out: bufio.NewWriterSize(w, 32<<10), openMetrics: openMetrics, kinds: map[string]string{}, names: maxNames, limit: maxBytes}
}

// add reads an exposition to its end and writes its valid lines.
func (m *merger) add(r io.Reader, openMetrics bool) (rep report) {
	ended := m.read(r, openMetrics, &rep)
	m.next = metadata{}
	switch {
	case rep.err != nil:
	case rep.invalid > 0:
		rep.err = errInvalid
	case openMetrics && !ended:
		rep.err = errNoEnd
	}
	return rep
}

// read reads an exposition, and reports whether it has seen its end.
func (m *merger) read(r io.Reader, openMetrics bool, rep *report) (ended bool) {
	limited := &io.LimitedReader{R: r, N: m.limit + 1}
	in := bufio.NewReaderSize(limited, maxLine)
	for {
		text, err := in.ReadSlice('\n')
		rep.bytes += int64(len(text))
		switch {
		case rep.bytes > m.limit:
			rep.err = fmt.Errorf("it has more than %d MiB", m.limit>>20)
		case errors.Is(err, bufio.ErrBufferFull):
			rep.invalid++
			err = skipLine(in, &rep.bytes, m.limit)
		case err != nil && !errors.Is(err, io.EOF):
			rep.err = err // the last line may be incomplete
		default:
			if stop := m.line(bytes.TrimSuffix(text, []byte("\n")), openMetrics, rep); stop {
				return rep.err == nil
			}
		}
		if rep.err == nil && err != nil && !errors.Is(err, io.EOF) {
			rep.err = err
		}
		if rep.err != nil || err != nil {
			return false
		}
	}
}

// skipLine reads the rest of a line that is too long.
func skipLine(in *bufio.Reader, n *int64, limit int64) error {
	for {
		text, err := in.ReadSlice('\n')
		*n += int64(len(text))
		if !errors.Is(err, bufio.ErrBufferFull) || *n > limit {
			return err
		}
	}
}

// line writes one line, and reports whether the exposition has ended.
func (m *merger) line(text []byte, openMetrics bool, rep *report) (stop bool) {
	l, err := parseLine(text, openMetrics, m.room)
	if err != nil {
		rep.invalid++
		return false
	}
	switch l.kind {
	case nothing:
	case end:
		return openMetrics // in the Prometheus text format this is a comment
	case sample:
		m.room = l.labels
		switch written, err := m.sample(&l, openMetrics); {
		case err != nil:
			rep.err = err
			return true
		case written:
			rep.samples++
			rep.note(&l)
		default:
			rep.invalid++
		}
	default:
		if !m.describe(&l) {
			rep.invalid++
		}
	}
	return false
}

// note keeps the value of a sample that says how much Envoy did not record.
func (rep *report) note(l *line) {
	kind := overflowOf(l)
	if kind == "" {
		return
	}
	if rep.lost == nil {
		rep.lost = map[string]float64{}
	}
	rep.lost[kind] = l.number
}

// describe keeps metadata until the first sample.
func (m *merger) describe(l *line) bool {
	if m.next.name != string(l.name) {
		m.next = metadata{name: string(l.name)}
	}
	text := string(l.text)
	switch l.kind {
	case help:
		m.next.help, m.next.helped = text, true
	case typ:
		text = strings.ToLower(text)
		if !slices.Contains(known, text) {
			return false
		}
		m.next.typ = text
	default:
		if len(text) > maxTyping {
			return false
		}
		m.next.unit = text
	}
	return true
}

// known are the types of both formats.
var known = []string{counter, gauge, histogram, summary, untyped, unknown, "info", "stateset", "gaugehistogram"}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
	summary   = "summary"
	untyped   = "untyped" // in the Prometheus text format
	unknown   = "unknown" // in OpenMetrics
	total     = "_total"
)

// sample writes a sample, after the metadata of its family if that is new. It returns false if no parser would accept the sample in
// its family.
func (m *merger) sample(l *line, openMetrics bool) (bool, error) {
	m.flush(openMetrics)
	name := string(l.name)
	family := m.family(name)
	kind, ok := m.kinds[family]
	if !ok {
		if len(m.kinds) >= m.names {
			return false, errTooMany
		}
		m.kinds[name] = untyped
	}
	if !fits(l, kind, name) {
		return false, nil
	}
	m.row = append(m.row[:0], l.name...)
	m.row = appendLabels(m.row, l.labels, l.braces)
	m.row = append(append(m.row, ' '), l.value...)
	if l.timed {
		m.row = appendTime(append(m.row, ' '), l.time, m.openMetrics)
	}
	if e := l.exemplar; e != nil && m.openMetrics {
		m.row = append(m.row, " # "...)
		m.row = append(append(appendLabels(m.row, e.labels, true), ' '), e.value...)
		if len(e.time) > 0 {
			m.row = append(append(m.row, ' '), e.time...)
		}
	}
	if _, err := m.out.Write(append(m.row, '\n')); err != nil {
		return false, fmt.Errorf("%w: %w", errWriting, err)
	}
	return true, nil
}

// family returns the name of the family that a metric belongs to: the sum of a histogram belongs to the histogram.
func (m *merger) family(name string) string {
	if _, ok := m.kinds[name]; ok {
		return name
	}
	for _, suffix := range []string{"_count", "_sum", "_bucket", total} {
		base, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		switch k := m.kinds[base]; {
		case k == histogram && suffix != total, k == summary && suffix != total && suffix != "_bucket":
			return base
		case k == counter && suffix == total:
			return base // in OpenMetrics the family of a counter has no suffix
		}
	}
	return name
}

// fits reports whether a sample is valid in a family of its type.
func fits(l *line, kind, name string) bool {
	if kind != histogram && kind != summary {
		return true
	}
	if kind == histogram && l.number < 0 && !strings.HasSuffix(name, "_sum") {
		return false
	}
	for _, label := range l.labels {
		if kind == histogram && string(label.name) == "le" || kind == summary && string(label.name) == "quantile" {
			if _, _, rest, err := cutNumber(label.value); err != nil || len(rest) > 0 {
				return false
			}
		}
	}
	return true
}

// flush writes the metadata of the next family, unless it has been written.
func (m *merger) flush(openMetrics bool) {
	n := m.next
	m.next = metadata{}
	if n.name == "" {
		return
	}
	name, kind := n.translate(openMetrics, m.openMetrics)
	if _, old := m.kinds[m.family(name)]; old || len(m.kinds) >= m.names {
		return
	}
	m.kinds[name] = kind
	if kind == "" {
		m.kinds[name] = untyped
	}
	if n.helped && n.help != "" {
		if m.openMetrics && !openMetrics {
			n.help = quoteHelp(n.help)
		}
		fmt.Fprintf(m.out, "# HELP %s %s\n", name, n.help)
	}
	if kind != "" {
		fmt.Fprintf(m.out, "# TYPE %s %s\n", name, kind)
	}
	if m.openMetrics && openMetrics && n.unit != "" && strings.HasSuffix(name, "_"+n.unit) {
		fmt.Fprintf(m.out, "# UNIT %s %s\n", name, n.unit)
	}
}

// translate returns name and type of a family in the format of the answer.
func (n metadata) translate(from, to bool) (name, kind string) {
	if from == to {
		if !to && !slices.Contains([]string{counter, gauge, histogram, summary, untyped}, n.typ) {
			return n.name, ""
		}
		if to && n.typ == untyped {
			return n.name, unknown
		}
		return n.name, n.typ
	}
	if to {
		base, hasTotal := strings.CutSuffix(n.name, total)
		switch {
		case n.typ == counter && hasTotal && base != "":
			return base, counter
		case n.typ == counter || n.typ == untyped:
			return n.name, unknown // OpenMetrics has no counter with another suffix
		}
		return n.name, n.typ
	}
	switch n.typ {
	case counter:
		return n.name + total, counter
	case "info":
		return n.name + "_info", gauge
	case "stateset":
		return n.name, gauge
	case unknown:
		return n.name, untyped
	case "gaugehistogram":
		return n.name, "" // the Prometheus text format has none
	}
	return n.name, n.typ
}

// quoteHelp escapes quotes, as OpenMetrics requires.
func quoteHelp(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			out.WriteByte('\\')
			i++
		case '"':
			out.WriteByte('\\')
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

func appendLabels(row []byte, labels []label, braces bool) []byte {
	if len(labels) == 0 && !braces {
		return row
	}
	row = append(row, '{')
	for i, l := range labels {
		if i > 0 {
			row = append(row, ',')
		}
		row = append(append(row, l.name...), '=', '"')
		row = append(append(row, l.value...), '"')
	}
	return append(row, '}')
}

// appendTime writes a time: milliseconds, or seconds in OpenMetrics.
func appendTime(row []byte, ms int64, seconds bool) []byte {
	if !seconds {
		return strconv.AppendInt(row, ms, 10)
	}
	return strconv.AppendFloat(row, float64(ms)/1000, 'f', 3, 64)
}

// finish ends the answer.
func (m *merger) finish() error {
	if m.openMetrics {
		if _, err := m.out.WriteString("# EOF\n"); err != nil {
			return fmt.Errorf("%w: %w", errWriting, err)
		}
	}
	if err := m.out.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errWriting, err)
	}
	return nil
}
