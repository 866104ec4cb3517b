package entrance

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// page is text that is being written. After the first error nothing more is written.
type page struct {
	tabs *tabwriter.Writer
	err  error
}

func newPage(w io.Writer) *page { return &page{tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// line writes cells in columns, without those at the end that are empty.
func (p *page) line(cells ...string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.tabs, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
}

// heading begins a section with its own columns.
func (p *page) heading(title string) {
	if p.err == nil {
		p.err = p.tabs.Flush()
	}
	p.line("")
	p.line(title)
}

func (p *page) done() error {
	if p.err != nil {
		return p.err
	}
	return p.tabs.Flush()
}

// Write writes the answer as text.
func (a *Answer) Write(w io.Writer) error {
	p := newPage(w)
	verdict := "nobody answers"
	if a.Served {
		verdict = "served"
	}
	asked := a.Host
	if a.Port != 0 {
		asked += fmt.Sprintf(":%d", a.Port)
	}
	p.line(fmt.Sprintf("gateway %s: %s (revision %d)", asked+a.Path, verdict, a.Revision))
	for _, f := range a.Fronts {
		p.heading(title(f.Namespace, f.Selector, f.Proxies))
		for _, s := range f.Servers {
			p.server(s)
		}
	}
	if len(a.Reasons) > 0 {
		p.heading(map[bool]string{true: "note", false: "why not"}[a.Served])
		for _, r := range a.Reasons {
			p.line("  " + r)
		}
	}
	return p.done()
}

// title names a set of gateways.
func title(namespace, selector string, proxies []string) string {
	if len(proxies) == 0 {
		if selector == "" {
			return "all gateways"
		}
		return "gateways with the labels " + selector
	}
	const shown = 3
	text := strings.Join(proxies[:min(len(proxies), shown)], ", ")
	if more := len(proxies) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "gateways of namespace " + namespace + ": " + text
}

func (p *page) server(s Server) {
	port := fmt.Sprintf("  port %d", s.Port)
	if s.Listens != s.Port {
		port += fmt.Sprintf(" (listens at %d)", s.Listens)
	}
	p.line(port+" "+s.Protocol, "host "+s.Host, s.Object.Key().String(), s.Object.Position(), s.Field)
	for _, c := range s.Certificates {
		p.line("    " + c.text())
	}
	if s.Redirects {
		p.line("    requests are redirected to HTTPS")
	}
	if s.Trouble != "" {
		p.line("    " + s.Trouble)
	}
	for _, r := range s.Routes {
		p.line("    "+r.Match, r.Object.Key().String(), r.Object.Position(), r.Field)
		if r.Response != "" {
			p.line("      the gateway responds with " + r.Response)
		}
		for _, d := range r.Destinations {
			p.line("      " + d.text())
		}
	}
}

func (c Certificate) text() string {
	text := "certificate "
	switch {
	case c.File != "":
		return text + "from the file " + c.File
	case c.Expires != nil:
		text += c.Secret + ", expires " + c.Expires.UTC().Format(time.DateOnly)
	default:
		text += c.Secret
	}
	if c.Trouble != "" {
		text += ": " + c.Trouble
	}
	return text
}

func (d Destination) text() string {
	to := fmt.Sprintf("%d %% to %s", d.Percent, d.Host)
	if d.Port != 0 {
		to += fmt.Sprintf(":%d", d.Port)
	}
	if d.Subset != "" {
		to += " subset " + d.Subset
	}
	if d.Trouble != "" {
		return to + ": " + d.Trouble
	}
	if d.Endpoints == 0 {
		return to
	}
	return fmt.Sprintf("%s (%d of %d endpoints healthy)", to, d.Healthy, d.Endpoints)
}

// WriteGateways writes the gateways as text.
func (l *List) WriteGateways(w io.Writer) error {
	p := newPage(w)
	p.line("GATEWAYS", "CONNECTED", "PORT", "LISTENS", "PROTOCOL", "SERVERS")
	for _, g := range l.Gateways {
		name := title(g.Namespace, g.Selector, g.Proxies)
		if len(g.Sockets) == 0 {
			p.line(name, fmt.Sprint(len(g.Proxies)))
		}
		for _, s := range g.Sockets {
			at := fmt.Sprint(s.Listens)
			if s.Bind != "" {
				at = s.Bind + " " + at
			}
			p.line(name, fmt.Sprint(len(g.Proxies)), fmt.Sprint(s.Port), at, s.Protocol, fmt.Sprint(s.Servers))
		}
	}
	return p.done()
}

// WriteHosts writes the claims on hosts as text.
func (l *List) WriteHosts(w io.Writer) error {
	p := newPage(w)
	p.line("HOST", "PORT", "PROTOCOL", "OBJECT", "SECRET", "STATE")
	for _, c := range l.Hosts {
		state, secret := "used", c.Secret
		if c.Unused != "" {
			state = "lost: " + c.Unused
		}
		if secret == "" {
			secret = "-"
		}
		p.line(c.Host, fmt.Sprint(c.Port), c.Protocol, c.Object.Key().String(), secret, state)
	}
	if l.More > 0 {
		p.line(fmt.Sprintf("and %d more", l.More))
	}
	return p.done()
}
