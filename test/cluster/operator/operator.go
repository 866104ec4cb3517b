// Package operator acts as a person with pilotctl and kubectl, for tests of a control plane on a real Kubernetes. Where something cannot be done, its
// methods fail the test.
//
// Goroutines: none.
package operator

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
)

// Patience is how long methods wait for things that take a moment on an idle machine.
const Patience = 2 * time.Minute

// values name the images of the test cluster.
const values = `
image: pilot.test/pilot-discovery:v1
autoscaleEnabled: false
resources: {requests: {cpu: 10m, memory: 32Mi}}
global:
  proxy: {image: "pilot.test/pilot-agent:v1", resources: {requests: {cpu: 10m, memory: 32Mi}}}
  proxy_init: {image: "pilot.test/pilot-agent:v1"}
`

// User is a person with pilotctl and kubectl.
type User struct {
	*testing.T
	C *cluster.Cluster
	// Pilotctl is the path of the program, and Values of a file of values with the images of the test cluster.
	Pilotctl, Values string
}

// New returns a user of a cluster, with a new pilotctl.
func New(t *testing.T, c *cluster.Cluster) *User {
	t.Helper()
	u := &User{T: t, C: c}
	root, err := binaries.Root()
	u.Must(err)
	u.Pilotctl = filepath.Join(root, "bin", "pilotctl")
	u.Must(cluster.BuildProgram(t.Context(), u.Pilotctl, root, "./cmd/pilotctl"))
	u.Values = filepath.Join(t.TempDir(), "values.yaml")
	u.Must(os.WriteFile(u.Values, []byte(values), 0o600))
	return u
}

// Must fails the test if there is an error.
func (u *User) Must(err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

// Run calls pilotctl for the cluster, shows and returns its output, and returns its exit code.
func (u *User) Run(args ...string) (string, int) {
	u.Helper()
	out, code := u.Free(append(slices.Clone(args), "--kubeconfig", u.C.Kubeconfig())...)
	u.Logf("pilotctl %s\n%s", strings.Join(args, " "), out)
	return out, code
}

// Free calls pilotctl with these arguments alone, and returns its output and exit code. The variable KUBECONFIG names the cluster.
func (u *User) Free(args ...string) (string, int) {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience) // also for what cleans up after a test
	defer cancel()
	cmd := exec.CommandContext(ctx, u.Pilotctl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.C.Kubeconfig())
	out, err := cmd.CombinedOutput()
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok:
		return string(out), failed.ExitCode()
	case err != nil:
		u.Fatal(err)
	}
	return string(out), 0
}

// Done calls pilotctl, which must succeed.
func (u *User) Done(args ...string) string {
	u.Helper()
	out, code := u.Run(args...)
	if code != 0 {
		u.Errorf("pilotctl %s: exit code %d", strings.Join(args, " "), code)
		u.Fatalf("pods:\n%s", u.Kubectl("describe", "pods", "-n", "istio-system"))
	}
	return out
}

// Refused calls pilotctl, which must fail with an exit code and a text.
func (u *User) Refused(code int, text string, args ...string) {
	u.Helper()
	if out, is := u.Run(args...); is != code || !strings.Contains(out, text) {
		u.Errorf("pilotctl %s: exit code %d, want %d and %q", strings.Join(args, " "), is, code, text)
	}
}

// Kubectl calls kubectl, which must succeed, and returns its output.
func (u *User) Kubectl(args ...string) string {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience) // also for what cleans up after a test
	defer cancel()
	out, err := u.Tried(ctx, args...)
	if err != nil {
		u.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Tried calls kubectl, which may fail.
func (u *User) Tried(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, u.C.Kubectl(), append([]string{"--kubeconfig", u.C.Kubeconfig()}, args...)...).CombinedOutput()
	return string(out), err
}

// Until waits for a condition of the cluster.
func (u *User) Until(what string, ok func() bool) {
	u.Helper()
	limit := time.After(Patience)
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit:
			u.Fatalf("waiting for: %s", what)
		}
	}
}

// Objects returns the names of all objects of the cluster, without events.
func (u *User) Objects() []string {
	u.Helper()
	var all []string
	for kind := range strings.FieldsSeq(u.Kubectl("api-resources", "--verbs=list", "-o", "name")) {
		if strings.HasPrefix(kind, "events") || kind == "componentstatuses" {
			continue
		}
		list := u.Kubectl("get", kind, "-A", "--ignore-not-found", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		for name := range strings.FieldsSeq(list) {
			all = append(all, kind+" "+name)
		}
	}
	slices.Sort(all)
	return all
}

// Unchanged compares the objects of the cluster with their former state.
func (u *User) Unchanged(before []string) {
	u.Helper()
	var after []string
	limit := time.Now().Add(Patience / 4) // controllers remove what belongs to objects that are gone
	for after = u.Objects(); !slices.Equal(after, before) && time.Now().Before(limit); {
		after = u.Objects()
	}
	for _, name := range after {
		if !slices.Contains(before, name) {
			u.Errorf("uninstall has left %s", name)
		}
	}
	for _, name := range before {
		if !slices.Contains(after, name) {
			u.Errorf("uninstall has removed %s, which was there before", name)
		}
	}
}

// Levels returns the findings of pilotctl check by level.
func (u *User) Levels(args ...string) map[string][]string {
	u.Helper()
	out, _ := u.Run(append([]string{"check", "-o", "json"}, args...)...)
	var found []struct{ Check, Level, Result string }
	u.Must(json.Unmarshal([]byte(out), &found))
	levels := map[string][]string{}
	for _, f := range found {
		levels[f.Level] = append(levels[f.Level], f.Check+": "+f.Result)
	}
	return levels
}

// Rooted returns a condition for Until: the webhooks of a configuration have their roots.
func (u *User) Rooted(configuration string) func() bool {
	return func() bool {
		return u.Kubectl("get", "mutatingwebhookconfiguration/"+configuration, "--ignore-not-found", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}") != ""
	}
}
