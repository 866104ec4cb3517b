package console

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run"
)

// The formats of output.
const (
	Text = "text"
	JSON = "json"
	YAML = "yaml"
)

// Forms are the formats of output.
func Forms() []string { return []string{Text, JSON, YAML} }

// Output adds the flag for the output format: text, JSON, YAML, and others that the command has.
func Output(c *cobra.Command, others ...string) *string {
	forms := append(Forms(), others...)
	last := len(forms) - 1
	choice := strings.Join(forms[:last], ", ") + " or " + forms[last]
	form := c.Flags().StringP("output", "o", Text, "output format: "+choice)
	c.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(forms, *form) {
			return run.Usage(fmt.Errorf("--output: %q is not an output format; write %s", *form, choice))
		}
		return nil
	}
	return form
}

// Write writes v as JSON or YAML.
func Write(w io.Writer, form string, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if form == YAML {
		if body, err = yaml.JSONToYAML(body); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
		_, err = w.Write(body)
		return err
	}
	_, err = w.Write(append(body, '\n'))
	return err
}

// Show writes an answer as text, JSON or YAML.
func Show(w io.Writer, form string, v any, asText func(io.Writer) error) error {
	if form == Text {
		return asText(w)
	}
	return Write(w, form, v)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Input reads a file; - is the standard input.
func Input(name string, stdin io.Reader) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	data, err := io.ReadAll(io.LimitReader(stdin, api.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the standard input: %w", err)
	}
	return data, nil
}
