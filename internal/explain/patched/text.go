package patched

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// extensionConfig is what patches apply to that proxies fetch by name.
const extensionConfig = "EXTENSION_CONFIG"

// context is how many equal lines a diff has around different ones.
const context = 3

// diff returns the difference of two messages as lines of YAML; empty if there is none.
func diff(before, after proto.Message) string {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: lines(before), B: lines(after), FromFile: "before", ToFile: "after", Context: context})
	if err != nil {
		return fmt.Sprintf("the difference cannot be shown: %v", err)
	}
	return text
}

// lines is a message as lines of YAML, and none for no message.
func lines(m proto.Message) []string {
	if m == nil || !m.ProtoReflect().IsValid() {
		return nil
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err == nil {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return []string{fmt.Sprintf("# it has a part that cannot be shown: %v\n", err)}
	}
	return slices.Collect(strings.Lines(string(text)))
}

// Write writes the answer as text.
func (a *Answer) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "EnvoyFilter %s (revision %d): applies to %s\n", a.Filter, a.Revision, a.who())
	for _, p := range a.Patches {
		fmt.Fprintf(&b, "\npatch %d  %s %s  match %s\n  %s\n", p.Index, p.ApplyTo, p.Operation, p.Match, p.what())
	}
	for _, c := range a.Changes {
		name := c.Name
		if c.Host != "" {
			name += ", virtual host " + c.Host
		}
		fmt.Fprintf(&b, "\n%s %s, for %s%s\n", c.Type, name, counted(c.Kinds, "kind", "kinds")+" of proxies", c.by())
		for _, l := range c.LeftOut {
			became := "left out"
			if l.Denied {
				became = "left out, so that requests are denied"
			}
			fmt.Fprintf(&b, "  patch %d is %s: %s\n", l.Index, became, l.Reason)
		}
		if c.Diff != "" {
			b.WriteString(indented(c.Diff))
		}
	}
	if a.Omitted > 0 {
		fmt.Fprintf(&b, "\nand %s\n", counted(a.Omitted, "other resource", "other resources"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Complete reports whether each patch matches something, and none is left out.
func (a *Answer) Complete() bool {
	for _, p := range a.Patches {
		if p.Flaw != "" || p.LeftOut > 0 || p.Resources == 0 && p.ApplyTo != extensionConfig {
			return false
		}
	}
	return true
}

func (a *Answer) who() string {
	switch {
	case a.Kinds == 0:
		return "no proxy"
	case a.Described:
		return counted(a.Kinds, "kind", "kinds") + " of proxies, as the configuration describes them; none of the connected proxies is concerned"
	}
	return counted(a.Kinds, "kind", "kinds") + " of connected proxies"
}

func (p Patch) what() string {
	switch {
	case p.Flaw != "":
		return "left out everywhere: " + p.Flaw
	case p.ApplyTo == extensionConfig:
		return "proxies ask for it by name"
	case p.Resources+p.LeftOut == 0:
		return "matches nothing"
	}
	var parts []string
	if p.Resources > 0 {
		parts = append(parts, "matches "+counted(p.Places, "place", "places")+" in "+counted(p.Resources, "resource", "resources"))
	}
	if p.LeftOut > 0 {
		parts = append(parts, "is left out of "+counted(p.LeftOut, "resource", "resources"))
	}
	return strings.Join(parts, ", and ")
}

// by lists the patches that were applied.
func (c Change) by() string {
	if len(c.Patches) == 0 {
		return ""
	}
	numbers := strings.Trim(fmt.Sprint(c.Patches), "[]")
	return ", by patch " + strings.ReplaceAll(numbers, " ", ", ")
}

func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}
	return b.String()
}
