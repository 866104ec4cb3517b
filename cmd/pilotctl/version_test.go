package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/run"
)

// TestVersions: the client, the control plane and the proxies by their versions.
func TestVersions(t *testing.T) {
	server := httptest.NewServer(known(t))
	defer server.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	ask := func(args ...string) (code int, out, errs string) {
		c := root()
		var o, e bytes.Buffer
		c.SetOut(&o)
		c.SetErr(&e)
		code = run.Command(t.Context(), c, append([]string{"version"}, args...))
		return code, o.String(), e.String()
	}
	client := run.ReadBuild().Version
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--short", "--address", server.URL}, run.ExitDone, "client         " + client + "\ncontrol plane  test (another version than the client)\nproxies        2 of version 1.31.0, Envoy 1.40\n", ""},
		{[]string{"-s", "--address", server.URL + "," + server.URL}, run.ExitDone, "4 of version 1.31.0, Envoy 1.40", ""},
		{[]string{"--short", "--remote=false"}, run.ExitDone, "client  " + client + "\n", ""},
		{[]string{"--address", closed.URL}, run.ExitFailed, "", "is --address its --httpAddr?"},
		{[]string{"-o", "xml"}, run.ExitUsage, "", "write text, json or yaml"},
	} {
		code, out, errs := ask(c.args...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
			t.Errorf("version %v: exit %d\n%s%s", c.args, code, out, errs)
		}
	}
	code, out, _ := ask("-o", "json", "--address", server.URL)
	var v versions
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != run.ExitDone {
		t.Fatal(code, err, out)
	}
	if len(v.Planes) != 1 || v.Planes[0].Build.Version != "test" || len(v.Proxies) != 1 || v.Proxies[0] != (proxyCount{"1.31.0", "1.40", 2}) {
		t.Errorf("as JSON: %s", out)
	}
	if _, out, _ = ask("-o", "yaml", "--remote=false"); !strings.HasPrefix(out, "clientVersion:\n") {
		t.Errorf("as YAML: %s", out)
	}
}

// TestVersionAlone: without a control plane, and without a wish for one, the version of the client is enough.
func TestVersionAlone(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	c := versionCommand()
	c.Flags().Lookup("address").DefValue = closed.URL
	if err := c.Flags().Lookup("address").Value.Set(closed.URL); err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	c.SetOut(&o)
	c.SetErr(&e)
	if code := run.Command(t.Context(), c, []string{}); code != run.ExitDone || !strings.HasPrefix(o.String(), "client") || !strings.Contains(e.String(), "name one with --address") {
		t.Errorf("exit %d\n%s%s", code, o.String(), e.String())
	}
}
