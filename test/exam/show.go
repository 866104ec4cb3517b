package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/observation"
	"github.com/pilotmesh/pilot/test/repo"
)

// lint checks case files, all there are if none is named.
func lint(w io.Writer, names []string) error {
	cases, err := load(names)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d cases are well formed\n", len(cases))
	return nil
}

// show prints cases with what their requests are to meet.
func show(w io.Writer, names []string) error {
	cases, err := load(names)
	if err != nil {
		return err
	}
	for _, c := range cases {
		if err := showCase(w, c); err != nil {
			return err
		}
	}
	return nil
}

func load(names []string) ([]*casefile.Case, error) {
	root, err := repo.Root()
	if err != nil {
		return nil, err
	}
	return casefile.Select(locate(root, names), "")
}

// locate makes paths of names: a path may be given, or area/case, or an area, or nothing for all.
func locate(root string, names []string) []string {
	cases := filepath.Join(root, "test", "exam", "cases")
	if len(names) == 0 {
		return []string{cases}
	}
	var paths []string
	for _, n := range names {
		for _, at := range []string{filepath.Join(cases, n), filepath.Join(cases, n+".yaml"), n} {
			if _, err := os.Stat(at); err == nil {
				n = at
				break
			}
		}
		paths = append(paths, n)
	}
	return paths
}

func showCase(w io.Writer, c *casefile.Case) error {
	fmt.Fprintf(w, "%s: %s\n", c.Name(), c.Title)
	fmt.Fprintf(w, "  rule: %s\n  tags: %s\n", c.Spec, strings.Join(c.Tags, ", "))
	p := &c.Proxy
	fmt.Fprintf(w, "  proxy: %s %s.%s (service account %s) labels %v %s %s\n", p.Type, p.Name, p.Namespace, p.SA, p.Labels, p.Locality, p.Network)
	if len(c.Mesh) > 0 {
		fmt.Fprintf(w, "  mesh: %v\n", c.Mesh)
	}
	if len(c.Networks) > 0 {
		fmt.Fprintf(w, "  networks: %v\n", c.Networks)
	}
	fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.Config))
	want, err := observation.Read(c.WantPath())
	if c.Answered() {
		want = observation.Wanted(c)
	} else if errors.Is(err, fs.ErrNotExist) {
		want = &observation.Observation{}
	} else if err != nil {
		return err
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		fmt.Fprintf(w, "\n%-24s %s\n", r.Name, describe(r))
		if met := want.Find(r.Name); met != nil {
			fmt.Fprintf(w, "%24s %s\n", "->", met)
		}
	}
	fmt.Fprintln(w)
	return nil
}

// describe is a request in one line.
func describe(r *casefile.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "from %s", r.From)
	if r.Source != "" {
		fmt.Fprintf(&b, " %s", r.Source)
	}
	fmt.Fprintf(&b, " to %s", r.To)
	if t := r.TLS; t != nil {
		fmt.Fprintf(&b, ", TLS sni %q", t.SNI)
		if len(t.ALPN) > 0 {
			fmt.Fprintf(&b, " alpn %v", t.ALPN)
		}
		if t.As != "" {
			fmt.Fprintf(&b, " as %s", t.As)
		}
	}
	if h := r.HTTP; h != nil {
		fmt.Fprintf(&b, ", HTTP/%s %s %s%s", h.Version, h.Method, h.Host, h.Path)
		for _, k := range slices.Sorted(maps.Keys(h.Headers)) {
			fmt.Fprintf(&b, " %s:%s", k, strings.Join(h.Headers[k], ","))
		}
	} else {
		fmt.Fprintf(&b, ", TCP %q", r.TCP.Send)
	}
	if r.JWT != nil {
		fmt.Fprintf(&b, ", JWT of %s", r.JWT.Iss)
	}
	if r.Repeat > 1 {
		fmt.Fprintf(&b, ", %d times", r.Repeat)
	}
	return b.String()
}
