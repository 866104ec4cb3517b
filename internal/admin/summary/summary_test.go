package summary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// pages answers with the files of testdata/pages.txtar: a file is named as the page and its parameters.
func pages(t *testing.T) (get Get, want func(string) string) {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", "pages.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range a.Files {
		files[f.Name] = string(f.Data)
	}
	get = func(_ context.Context, page string, query url.Values, v any) error {
		name := page
		if len(query) > 0 {
			text, err := url.QueryUnescape(query.Encode())
			if err != nil {
				return err
			}
			name += "?" + text
		}
		body, ok := files[name]
		if !ok {
			t.Errorf("the page %s was asked for", name)
			return errors.New("no such page")
		}
		return json.Unmarshal([]byte(body), v)
	}
	return get, func(name string) string { return files[name] }
}

// TestSummaries: the screens for a pod and for a service.
func TestSummaries(t *testing.T) {
	get, want := pages(t)
	for _, c := range []struct{ kind, name, file string }{{"pod", "reviews-1", "pod.txt"}, {"service", "reviews", "service.txt"}} {
		s, err := Of(t.Context(), get, c.kind, "shop", c.name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := s.Write(&b); err != nil {
			t.Fatal(err)
		}
		if squeeze(b.String()) != squeeze(want(c.file)) {
			t.Errorf("%s:\n%s\nwant\n%s", c.file, b.String(), want(c.file))
		}
	}
}

// squeeze makes each run of blanks one blank.
func squeeze(s string) string {
	var all []string
	for _, line := range strings.Split(s, "\n") {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(all, "\n")
}

// TestUnknown: an error names what there is, or where to look.
func TestUnknown(t *testing.T) {
	get, _ := pages(t)
	for kind, want := range map[string]string{"pod": "pilotctl proxy-status lists the proxies", "service": "there are: reviews.shop.svc.cluster.local"} {
		if s, err := Of(t.Context(), get, kind, "shop", "revews"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", kind, s, err, want)
		}
	}
}
