package entrance

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/explain/page"
)

// text is an answer that is being written.
type text struct{ *page.Page }

// Write writes the answer as text.
func (a *Answer) Write(w io.Writer) error {
	p := text{page.New(w)}
	verdict := "nobody answers"
	if a.Served {
		verdict = "served"
	}
	asked := a.Host
	if a.Port != 0 {
		asked += fmt.Sprintf(":%d", a.Port)
	}
	p.Cells(fmt.Sprintf("gateway %s: %s (revision %d)", asked+a.Path, verdict, a.Revision))
	for _, f := range a.Fronts {
		p.Heading(title(f.Namespace, f.Selector, f.Proxies))
		for _, s := range f.Servers {
			p.server(s)
		}
	}
	if len(a.Reasons) > 0 {
		p.Heading(map[bool]string{true: "note", false: "why not"}[a.Served])
		for _, r := range a.Reasons {
			p.Cells("  " + r)
		}
	}
	return p.Done()
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

func (p text) server(s Server) {
	port := fmt.Sprintf("  port %d", s.Port)
	if s.Listens != s.Port {
		port += fmt.Sprintf(" (listens at %d)", s.Listens)
	}
	p.Cells(port+" "+s.Protocol, "host "+s.Host, s.Object.Key().String(), s.Object.Position(), s.Field)
	for _, c := range s.Certificates {
		p.Cells("    " + c.text())
	}
	if s.Redirects {
		p.Cells("    requests are redirected to HTTPS")
	}
	if s.Trouble != "" {
		p.Cells("    " + s.Trouble)
	}
	for _, r := range s.Routes {
		p.Cells("    "+r.Match, r.Object.Key().String(), r.Object.Position(), r.Field)
		if r.Response != "" {
			p.Cells("      the gateway responds with " + r.Response)
		}
		for _, d := range r.Destinations {
			p.Cells("      " + d.text())
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
	p := text{page.New(w)}
	p.Cells("GATEWAYS", "CONNECTED", "PORT", "LISTENS", "PROTOCOL", "SERVERS")
	for _, g := range l.Gateways {
		name := title(g.Namespace, g.Selector, g.Proxies)
		if len(g.Sockets) == 0 {
			p.Cells(name, fmt.Sprint(len(g.Proxies)))
		}
		for _, s := range g.Sockets {
			at := fmt.Sprint(s.Listens)
			if s.Bind != "" {
				at = s.Bind + " " + at
			}
			p.Cells(name, fmt.Sprint(len(g.Proxies)), fmt.Sprint(s.Port), at, s.Protocol, fmt.Sprint(s.Servers))
		}
	}
	return p.Done()
}

// WriteHosts writes the claims on hosts as text.
func (l *List) WriteHosts(w io.Writer) error {
	p := text{page.New(w)}
	p.Cells("HOST", "PORT", "PROTOCOL", "OBJECT", "SECRET", "STATE")
	for _, c := range l.Hosts {
		state, secret := "used", c.Secret
		if c.Unused != "" {
			state = "lost: " + c.Unused
		}
		if secret == "" {
			secret = "-"
		}
		p.Cells(c.Host, fmt.Sprint(c.Port), c.Protocol, c.Object.Key().String(), secret, state)
	}
	if l.More > 0 {
		p.Cells(fmt.Sprintf("and %d more", l.More))
	}
	return p.Done()
}
