package reply

import (
	"fmt"
	"io"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/page"
)

// Write writes an answer as text.
func (a *Answer) Write(w io.Writer) error {
	p := text{page.New(w)}
	p.Line("%s %s for %s: %s (revision %d)", a.Kind, a.Name, a.Proxy.Name, a.Verdict, a.Revision)
	for _, r := range a.Resources {
		p.resource(r)
	}
	for _, port := range a.Ports {
		p.port(port)
	}
	if len(a.Chains) > 0 {
		p.Heading("connections, the first line that fits")
	}
	for _, c := range a.Chains {
		p.Line("  %s", c)
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
		p.Heading(map[Verdict]string{Served: "note", HeldBack: "why", NotAsked: "why not", Absent: "why not"}[a.Verdict])
		p.reasons("  ", a.Reasons)
	}
	if len(a.Similar) > 0 {
		p.Heading("there is")
		for _, name := range a.Similar {
			p.Line("  %s", name)
		}
	}
	if len(a.Problems) > 0 {
		p.Heading("problems of these objects")
	}
	for _, one := range a.Problems {
		field := one.Field
		if field != "" {
			field += ": "
		}
		p.Line("  %s%s: %s: %s%s", one.Object.Prefix(), one.Level, one.Object.Key(), field, one.Reason)
	}
	return p.Done()
}

// text is an answer that is being written.
type text struct{ *page.Page }

func (p text) resource(r Resource) {
	if r.VirtualHost != "" {
		p.Heading(fmt.Sprintf("%s %s, virtual host %s", r.Type, r.Name, r.VirtualHost))
	} else {
		p.Heading(r.Type + " " + r.Name)
	}
	p.Line("  version\t%.12s, %d bytes", r.Version, r.Bytes)
	if r.Holds != "" {
		p.Line("  holds\t%s", r.Holds)
	}
	if r.SharedBy != "" {
		p.Line("  same for\t%s", r.SharedBy)
	}
}

func (p text) port(one Port) {
	title := fmt.Sprintf("port %d", one.Number)
	if one.Name != "" {
		title += " " + one.Name
	}
	if one.Protocol != "" {
		title += " (" + one.Protocol + ")"
	}
	p.Heading(title)
	if one.Listener != "" {
		p.Line("  listener\t%s", one.Listener)
	}
	if one.Route != "" {
		p.Line("  route\t%s, virtual host %s", one.Route, one.VirtualHost)
	}
	for _, c := range one.Clusters {
		p.Line("  cluster\t%s", c)
	}
	if len(one.Clusters) > 0 {
		p.Line("  endpoints\t%d", one.Endpoints)
	}
	for _, o := range one.Origins {
		p.Line("  \t  %s", o.text())
	}
	for _, d := range one.Destinations {
		p.Line("  goes to\t%s", d.text())
		if note := d.note(); note != "" {
			p.Line("  \t  %s", note)
		}
	}
	p.reasons("  ", one.Reasons)
}

func (p text) sources(title string, list []Source, keep func(Source) bool) {
	first := true
	for _, s := range list {
		if !keep(s) {
			continue
		}
		if first {
			p.Heading(title)
			first = false
		}
		cells := []string{"  " + s.Object.Key().String(), s.Role, s.Object.Position(), revisionText(s.Revision)}
		if s.Object.Name == "" {
			cells[0] = "  " + s.Object.Kind
		}
		if s.Unused != "" {
			cells[3] = s.Unused
		}
		p.Line("%s", strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
}

func revisionText(r store.Revision) string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf("revision %d", r)
}

func (p text) reasons(indent string, list []Reason) {
	for _, r := range list {
		if r.Object != nil {
			p.Line("%s%s%s: %s", indent, r.Object.Prefix(), r.Object.Key(), r.Text)
		} else {
			p.Line("%s%s", indent, r.Text)
		}
		if r.Fix != "" {
			p.Line("%s  fix: %s", indent, r.Fix)
		}
	}
}
