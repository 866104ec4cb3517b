package secret

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"file-root:/a/ca.pem", "roots [[/a/ca.pem]]"},
		{"file-root:rel/ca.pem", "roots [[rel/ca.pem]]"},
		{"file-root:/a~b", "roots [[/a~b]]"},
		{"file-cert:/a/c.pem~/a/k.pem", "pair [[/a/c.pem /a/k.pem]]"},
		{"file-root:", "names no file"},
		{"file-cert:", "does not name a certificate and a key"},
		{"file-cert:/a", "does not name a certificate and a key"},
		{"file-cert:~/a", "does not name a certificate and a key"},
		{"file-cert:/a~", "does not name a certificate and a key"},
		{"file-cert:/a~/b~/c", "does not name a certificate and a key"},
		{"kubernetes://x", "this agent has no secret of the name"},
		{"*", "this agent has no secret of the name"},
		{"", "this agent has no secret of the name"},
		{"Default", "this agent has no secret of the name"},
	} {
		s, err := parse(c.name)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint("roots ", s.alternatives)
			if s.pair {
				got = fmt.Sprint("pair ", s.alternatives)
			}
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.name, got, c.want)
		}
	}
	for _, name := range []string{"default", "ROOTCA", "file-root:system"} {
		if s, err := parse(name); err != nil || len(s.alternatives) < 3 || s.pair != (name == "default") {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// FuzzParse: a name is refused with a reason, or yields as many file names as its kind needs.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"default", "ROOTCA", "file-root:system", "file-root:/a", "file-cert:/a~/b", "file-cert:~", "", "x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s, err := parse(name)
		if err != nil {
			if len(err.Error()) < 20 || s.alternatives != nil {
				t.Errorf("%q: %+v, %v", name, s, err)
			}
			return
		}
		want := 1
		if s.pair {
			want = 2
		}
		if len(s.alternatives) == 0 {
			t.Errorf("%q means no file", name)
		}
		for _, files := range s.alternatives {
			if len(files) != want {
				t.Errorf("%q means %q", name, files)
			}
			for _, file := range files {
				if file == "" {
					t.Errorf("%q means %q", name, files)
				}
			}
		}
	})
}
