package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// restartable are the options of an agent with hot restarts whose settings are in a file. The old Envoy has two seconds to ask its clients to
// connect again, and a third one to exit.
type restartable struct {
	*bed
	*testbed.Agent
	settings string // the file
	changes  int
}

// restarts starts an agent with hot restarts, and waits until it is ready.
func (b *bed) restarts(o testbed.AgentOptions, node testbed.Node) *restartable {
	b.Helper()
	r := &restartable{bed: b, settings: filepath.Join(b.TempDir(), "mesh.yaml")}
	r.write()
	o.Args = append(o.Args, "--hotRestart", "--meshConfig="+r.settings, "--drainDuration=2s", "--parentShutdownDuration=3s")
	r.Agent = b.ready(o, node)
	return r
}

// write writes the settings, which differ from those before.
func (r *restartable) write() {
	r.bed.Helper()
	text := fmt.Sprintf("defaultConfig: {runtimeValues: {changes: %q}}\n", fmt.Sprint(r.changes))
	if err := os.WriteFile(r.settings, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// change changes the settings, and waits until the old Envoy has ended.
func (r *restartable) change() {
	r.bed.Helper()
	r.changes++
	r.write()
	r.complete(r.changes)
}

// complete waits until n hot restarts are complete.
func (r *restartable) complete(n int) {
	r.bed.Helper()
	r.says("the hot restart is complete", n)
}

// says waits until the log says something n times.
func (r *restartable) says(what string, n int) {
	r.bed.Helper()
	r.await(fmt.Sprintf("%q in the log, %d times", what, n), func(context.Context) error {
		text, err := r.WholeLog()
		if err != nil {
			return err
		}
		if found := strings.Count(text, what); found < n {
			return fmt.Errorf("it is there %d times", found)
		}
		return nil
	})
}

// admin wants something on a page of Envoy.
func (r *restartable) admin(path, want string) {
	r.bed.Helper()
	page, err := r.Admin(r.Context(), path)
	if err != nil || !strings.Contains(page, want) {
		r.Errorf("%s: %v; want %s in:\n%s", path, err, want, page)
	}
}

// TestHotRestartUnderLoad: two sidecars are replaced again and again because of changed settings, under 500 requests per second with mutual
// TLS between them. No request fails. HOT_RESTART_FOR is how long it takes.
func TestHotRestartUnderLoad(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("HOT_RESTART_FOR"), "10s"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t)
	b.TLSOnly()
	if _, err := b.Write("web.yaml", fmt.Sprintf(rotated, webHost, b.port, b.backend.port)); err != nil {
		t.Fatal(err)
	}
	b.serve()
	web := b.restarts(b.certified("web"), testbed.Node{Name: "web", IP: "127.1.0.2"})
	app := b.restarts(b.certified("app"), testbed.Node{})
	b.answers()
	load := testbed.StartAsking(t.Context(), 10, 50, func(ctx context.Context, _ *http.Client) (string, error) {
		code, err := b.get(ctx)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return "web", err
	})
	began := time.Now()
	for time.Since(began) < length {
		web.change()
		app.change()
	}
	took := time.Since(began)
	tally := load.Stop()
	t.Logf("%d requests in %v; hot restarts: %d of web, %d of app", tally.Total(), took.Round(time.Second), web.changes, app.changes)
	if tally.Failures > 0 || tally.Total() < int(took/time.Second)*400 {
		t.Errorf("%d of %d requests failed, the first at %v", tally.Failures, tally.Total(), tally.First)
	}
	for _, r := range []*restartable{web, app} {
		r.admin("/server_info", fmt.Sprintf(`"restart_epoch": %d`, r.changes))
		r.admin("/runtime", fmt.Sprint(r.changes))
		r.bootstraps(1)
	}
}

// bootstraps wants that many files with bootstraps.
func (r *restartable) bootstraps(want int) {
	r.bed.Helper()
	r.await(fmt.Sprintf("%d bootstraps", want), func(context.Context) error {
		found, err := filepath.Glob(filepath.Join(r.Dir(), "*.json"))
		if err != nil {
			return err
		}
		if len(found) != want {
			return errors.New(strings.Join(found, " "))
		}
		return nil
	})
}
