// Package page writes answers as text: lines in sections, each with columns of its own. It owns nothing but the text that is not aligned yet, and
// starts no goroutines.
package page

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Page is text that is being written. After the first error nothing more is written. It is for one goroutine.
type Page struct {
	tabs *tabwriter.Writer
	err  error
}

// New returns an empty page.
func New(w io.Writer) *Page { return &Page{tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// Line writes a line. A tab begins a column.
func (p *Page) Line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.tabs, format+"\n", args...)
	}
}

// Cells writes a line with a column for each cell, without empty ones at the end.
func (p *Page) Cells(cells ...string) {
	p.Line("%s", strings.TrimRight(strings.Join(cells, "\t"), "\t "))
}

// Heading begins a section with its own columns, after an empty line.
func (p *Page) Heading(title string) {
	if p.err == nil {
		p.err = p.tabs.Flush()
	}
	p.Line("\n%s", title)
}

// Done writes the last section. It returns the first error of the page.
func (p *Page) Done() error {
	if p.err != nil {
		return p.err
	}
	return p.tabs.Flush()
}
