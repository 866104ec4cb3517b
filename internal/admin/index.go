package admin

import (
	_ "embed" // the head of the index page
	"fmt"
	"html"
	"net/http"
	"strings"
)

// indexHead is the index page up to its title.
//
//go:embed index.html
var indexHead string

// indexPage is the index page while it is written. It is no template of html/template, because the linker then keeps every exported method of every type,
// which made the program a fifth larger.
type indexPage struct{ strings.Builder }

// row writes a row of a table. Its cells are HTML.
func (i *indexPage) row(head, cell string) {
	fmt.Fprintf(i, "<tr><th scope=\"row\">%s</th><td>%s</td></tr>\n", head, cell)
}

// link writes a row about another page: its address, a text about it, and its parameters.
func (i *indexPage) link(path, query, about string, parameters ...string) {
	fmt.Fprintf(i, "<tr><td><a href=\"%s%s\">%[1]s</a></td><td>%[3]s", html.EscapeString(path), query, html.EscapeString(about))
	for _, p := range parameters {
		fmt.Fprintf(i, " <code>%s</code>", html.EscapeString(p))
	}
	i.WriteString("</td></tr>\n")
}

func (p *Pages) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(p.front())) // an error means that the client has gone
}

// front returns the index page: the state of the program, and a link to each page.
func (p *Pages) front() string {
	var i indexPage
	fmt.Fprintf(&i, "%s<h1>pilot-discovery <small>%s</small></h1>\n<table>\n", indexHead, html.EscapeString(p.Build.String()))
	state := "ready"
	if waiting := p.Ready.Reasons(); len(waiting) > 0 {
		state = "not ready: " + html.EscapeString(strings.Join(waiting, "; "))
	}
	i.row("state", state)
	i.row("proxies", fmt.Sprintf("%d connected", len(p.Streams.Streams())))
	errs, warnings := p.Board.count()
	i.row("problems", fmt.Sprintf(`<a href="/debug/problemz?pretty">%d errors, %d warnings</a>`, errs, warnings))
	if last := p.Commits.Last(); len(last) > 0 {
		i.row("last commit", fmt.Sprintf("revision %d, %s UTC", last[0].Revision, last[0].At.UTC().Format("2006-01-02 15:04:05.000")))
	}
	i.WriteString("</table>\n<h2>Pages</h2>\n<table>\n")
	const indented = "?pretty"
	for _, page := range p.list {
		i.link(page.Path, indented, page.What, page.Parameters...)
	}
	i.link("/debug/list", indented, "this list as JSON")
	if p.Profile {
		i.link("/debug/pprof/", "", "profiles of the program")
	}
	i.link("/ready", "", "200 when proxies are served, otherwise 503 and why not")
	i.link("/metrics", "", "metrics for Prometheus")
	i.link("/version", indented, "which program this is")
	i.WriteString("</table>\n<p><small>All pages are JSON; <code>?pretty</code> indents it. <code>proxyID</code> is a part of a connection's id, such as " +
		"<code>name.namespace</code>.</small></p>\n</body>\n</html>\n")
	return i.String()
}
