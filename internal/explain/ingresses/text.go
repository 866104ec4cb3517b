package ingresses

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/explain/page"
)

// text is an answer that is being written.
type text struct{ *page.Page }

// Write writes the answer as text.
func (a *Answer) Write(w io.Writer) error {
	p := text{page.New(w)}
	p.Line("mode %s, class %s (revision %d)", a.Mode, a.Class, a.Revision)
	if len(a.Connected) > 0 {
		p.Line("connected gateways: %s", strings.Join(a.Connected, ", "))
	} else {
		p.Line("no gateway with the label is connected: nothing serves this")
	}
	for _, h := range a.Hosts {
		p.host(h)
	}
	switch {
	case a.More > 0:
		p.Heading(fmt.Sprintf("and %d more hosts; name one to see it", a.More))
	case len(a.Hosts) == 0 && a.Asked != "":
		p.Heading("no Ingress that counts has rules for " + a.Asked)
	case len(a.Hosts) == 0:
		p.Heading("no Ingress counts")
	case a.Asked != "" && a.Hosts[0].Host != a.Asked:
		p.Heading(fmt.Sprintf("there are no rules for %s itself", a.Asked))
	}
	if len(a.Similar) > 0 {
		p.Heading("there is")
		for _, name := range a.Similar {
			p.Line("  %s", name)
		}
	}
	if len(a.Uncounted) > 0 {
		p.Heading("not served by this mesh")
		for _, u := range a.Uncounted {
			p.Line("  %s\t%s\t%s", u.Object.Key(), u.Object.Position(), u.Reason)
		}
	}
	return p.Done()
}

func (p text) host(h Host) {
	p.Heading("host " + h.Host)
	p.Line("  gateways with the label %s", h.Gateway)
	for _, s := range h.Servers {
		secret := ""
		if s.Secret != "" {
			secret = "secret " + s.Secret + " for " + s.For
		}
		p.Line("  %d %s\t%s\t%s\t%s%s", s.Port, s.Protocol, secret, s.Object.Key(), s.Object.Position(), after("\tnot used: ", s.Unused)+after("\t", s.Trouble))
	}
	p.Heading("  routes, the first line that fits")
	for _, r := range h.Routes {
		if r.Unused == "" {
			p.route(r)
		}
	}
	unused := slices.DeleteFunc(slices.Clone(h.Routes), func(r Route) bool { return r.Unused == "" })
	if len(unused) > 0 {
		p.Heading("  not used")
	}
	for _, r := range unused {
		p.route(r)
	}
}

func (p text) route(r Route) {
	backend := r.Backend
	if r.Target != "" {
		backend += ", that is " + r.Target
	}
	p.Line("  %s %s\t%s\t%s\t%s\t%s%s", r.Match, r.Path, backend, r.Object.Key(), r.Object.Position(), r.Field, after(": ", r.Unused+r.Trouble))
}

// after returns a text behind a separator, or nothing if there is no text.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}
