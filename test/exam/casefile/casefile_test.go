package casefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLintSaysWhere(t *testing.T) {
	const good = "title: t\nconfig: |\n  apiVersion: v1\n  kind: K\n  metadata: {name: n}\nrequests:\n- name: a\n  to: 10.0.0.1:80\n  http: {}\n"
	for name, c := range map[string]struct{ text, want string }{
		"good":          {good, ""},
		"unknown field": {strings.Replace(good, "  http", "  htp", 1), ":9: field htp not found"},
		"twice":         {good + "- name: a\n  to: 10.0.0.1:80\n  http: {}\n", `"a" is used twice`},
		"bad document":  {strings.Replace(good, "metadata: {name: n}", "metadata: {}", 1), ":3: document without metadata.name"},
		"watch":         {good + "  watch: [nonsense]\n", `watch "nonsense" is unknown`},
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
