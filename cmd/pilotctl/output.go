package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ctl/console"
)

// text is the usual format of output.
const text = console.Text

// addOutput adds the flag for the output format: text, JSON, YAML, and others that the command has.
func addOutput(c *cobra.Command, others ...string) *string { return console.Output(c, others...) }

// write writes v as JSON or YAML.
func write(w io.Writer, form string, v any) error { return console.Write(w, form, v) }

// show writes an answer as text, JSON or YAML.
func show(w io.Writer, form string, v any, asText func(io.Writer) error) error {
	return console.Show(w, form, v, asText)
}

// color is an ANSI colour.
type color string

const (
	red    color = "31"
	yellow color = "33"
	green  color = "32"
	bold   color = "1"
)

// paint reports whether text is coloured for a terminal.
type paint bool

// painter enables colours if w is a terminal and the environment does not disable them (NO_COLOR).
func painter(w io.Writer) paint {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return paint(err == nil && info.Mode()&os.ModeCharDevice != 0)
}

func (p paint) in(c color, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// line formats a problem in one line, like the messages of compilers.
func (p paint) line(one admin.Problem) string {
	var b strings.Builder
	if one.File != "" {
		b.WriteString(one.File)
		if one.Line > 0 {
			fmt.Fprintf(&b, ":%d", one.Line)
			if one.Column > 0 {
				fmt.Fprintf(&b, ":%d", one.Column)
			}
		}
		b.WriteString(": ")
	}
	switch one.Level {
	case "error":
		b.WriteString(p.in(red, one.Level))
	case "warning":
		b.WriteString(p.in(yellow, one.Level))
	default:
		b.WriteString(one.Level)
	}
	for _, part := range []string{p.in(bold, one.Object.Key().String()), one.Field} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	b.WriteString(": " + one.Reason)
	if one.Code != "" {
		b.WriteString(" [" + string(one.Code) + "]")
	}
	return b.String()
}

// count returns text such as "1 error" or "3 errors".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// tally counts errors and warnings.
func tally(list []admin.Problem) (errors, warnings int) {
	for _, one := range list {
		switch one.Level {
		case "error":
			errors++
		case "warning":
			warnings++
		}
	}
	return errors, warnings
}
