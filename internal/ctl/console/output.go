package console

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

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

// Output adds the flag for the output format.
func Output(c *cobra.Command) *string {
	form := c.Flags().StringP("output", "o", Text, "output format: text, json or yaml")
	c.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(Forms(), *form) {
			return run.Usage(fmt.Errorf("--output: %q is not an output format; write text, json or yaml", *form))
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
