package why

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Write writes an answer as text.
func (a *Answer) Write(w io.Writer) error {
	p := &page{tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	p.line("%s %s for %s: %s (revision %d)", a.Kind, a.Name, a.Proxy.Name, a.Verdict, a.Revision)
	for _, r := range a.Resources {
		p.resource(r)
	}
	for _, port := range a.Ports {
		p.port(port)
	}
	if len(a.Chains) > 0 {
		p.heading("connections, the first line that fits")
	}
	for _, c := range a.Chains {
		p.line("  %s", c)
	}
	if len(a.Policies) > 0 {
		p.policies(a.Policies)
	}
	made := "made of"
	if a.Verdict == Absent {
		made = "what there is"
	}
	p.sources(made, a.Sources, func(s Source) bool { return s.Unused == "" })
	p.sources("not used", a.Sources, func(s Source) bool { return s.Unused != "" })
	if len(a.Reasons) > 0 {
		p.heading(map[Verdict]string{Served: "note", HeldBack: "why", NotAsked: "why not", Absent: "why not"}[a.Verdict])
		p.reasons("  ", a.Reasons)
	}
	if len(a.Similar) > 0 {
		p.heading("there is")
		for _, name := range a.Similar {
			p.line("  %s", name)
		}
	}
	if len(a.Problems) > 0 {
		p.heading("problems of these objects")
	}
	for _, one := range a.Problems {
		field := one.Field
		if field != "" {
			field += ": "
		}
		p.line("  %s%s: %s: %s%s", placePrefix(one.Object.Position()), one.Level, one.Object.Key(), field, one.Reason)
	}
	if p.err != nil {
		return p.err
	}
	return p.tabs.Flush()
}

func placePrefix(place string) string {
	if place == "" {
		return ""
	}
	return place + ": "
}

// page is an answer that is being written. After the first error nothing more is written.
type page struct {
	tabs *tabwriter.Writer
	err  error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.tabs, format+"\n", args...)
	}
}

// heading begins a section with its own columns.
func (p *page) heading(title string) {
	if p.err == nil {
		p.err = p.tabs.Flush()
	}
	p.line("\n%s", title)
}

func (p *page) resource(r Resource) {
	if r.VirtualHost != "" {
		p.heading(fmt.Sprintf("%s %s, virtual host %s", r.Type, r.Name, r.VirtualHost))
	} else {
		p.heading(r.Type + " " + r.Name)
	}
	p.line("  version\t%.12s, %d bytes", r.Version, r.Bytes)
	if r.Holds != "" {
		p.line("  holds\t%s", r.Holds)
	}
	if r.SharedBy != "" {
		p.line("  same for\t%s", r.SharedBy)
	}
}

func (p *page) port(one Port) {
	title := fmt.Sprintf("port %d", one.Number)
	if one.Name != "" {
		title += " " + one.Name
	}
	if one.Protocol != "" {
		title += " (" + one.Protocol + ")"
	}
	p.heading(title)
	if one.Listener != "" {
		p.line("  listener\t%s", one.Listener)
	}
	if one.Route != "" {
		p.line("  route\t%s, virtual host %s", one.Route, one.VirtualHost)
	}
	for _, c := range one.Clusters {
		p.line("  cluster\t%s", c)
	}
	if len(one.Clusters) > 0 {
		p.line("  endpoints\t%d", one.Endpoints)
	}
	for _, o := range one.Origins {
		p.line("  \t  %s", o.text())
	}
	for _, d := range one.Destinations {
		p.line("  goes to\t%s", d.text())
		if note := d.note(); note != "" {
			p.line("  \t  %s", note)
		}
	}
	p.reasons("  ", one.Reasons)
}

func (p *page) sources(title string, list []Source, keep func(Source) bool) {
	first := true
	for _, s := range list {
		if !keep(s) {
			continue
		}
		if first {
			p.heading(title)
			first = false
		}
		cells := []string{"  " + s.Object.Key().String(), s.Role, s.Object.Position(), revisionText(s.Revision)}
		if s.Object.Name == "" {
			cells[0] = "  " + s.Object.Kind
		}
		if s.Unused != "" {
			cells[3] = s.Unused
		}
		p.line("%s", strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
}

func revisionText(r store.Revision) string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf("revision %d", r)
}

func (p *page) reasons(indent string, list []Reason) {
	for _, r := range list {
		if r.Object != nil {
			p.line("%s%s%s: %s", indent, placePrefix(r.Object.Position()), r.Object.Key(), r.Text)
		} else {
			p.line("%s%s", indent, r.Text)
		}
		if r.Fix != "" {
			p.line("%s  fix: %s", indent, r.Fix)
		}
	}
}
