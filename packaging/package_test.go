package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// patience is how long all steps may take on a busy machine.
const patience = 4 * time.Minute

// build builds a program of the product.
func build(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/"+name)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// needed skips the test where something is missing, and returns an Envoy.
func needed(t *testing.T, programs ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a machine in namespaces needs root")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	if path := os.Getenv("ENVOY"); path != "" {
		return path
	}
	found, err := filepath.Glob("../.tools/envoy-*/envoy")
	if err != nil || len(found) == 0 {
		t.Skip("there is no Envoy: make tools")
	}
	path, err := filepath.Abs(found[len(found)-1])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// write writes a file into the folder that the machine sees.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPackage installs the package on a machine with systemd, starts the service as a member of a mesh, restarts it, kills it, stops it,
// and removes the package. Nothing is left then.
func TestPackage(t *testing.T) {
	envoy := needed(t, "unshare", "dpkg", "adduser", "ip", "iptables-save", "/usr/lib/systemd/systemd")
	share := t.TempDir()
	o := order{agent: build(t, share, "pilot-agent"), files: "files", version: "1.2.3", arch: "amd64", date: time.Unix(1, 0)}
	if _, err := o.write(share); err != nil {
		t.Fatal(err)
	}
	build(t, share, "pilot-discovery")
	build(t, share, "pilotctl")
	steps, err := os.ReadFile("testdata/steps.sh")
	if err != nil {
		t.Fatal(err)
	}
	const group = "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: vm, namespace: shop}\nspec: {template: {serviceAccount: web}}\n"
	write(t, share, "steps.sh", string(steps))
	write(t, share, "group.yaml", group)
	write(t, share, "config/none.yaml", "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--cgroup", "--ipc", "--uts", "sh", "testdata/machine.sh", share, envoy)
	out, err := cmd.CombinedOutput() // a machine that powers off ends by a signal
	log, logErr := os.ReadFile(filepath.Join(share, "steps.log"))
	if _, done := os.Stat(filepath.Join(share, "done")); done != nil {
		console, _ := os.ReadFile(filepath.Join(share, "console"))
		t.Fatalf("the machine: %v\n%s\n%s\nthe steps: %v\n%s", err, out, last(console), logErr, last(log))
	}
	changed, err := os.ReadFile(filepath.Join(share, "left"))
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(changed)) {
		if info, err := os.Stat(filepath.Join("/", path)); err != nil || !info.IsDir() { // folders that were there are changed when something in them is
			t.Errorf("left behind: %s", path)
		}
	}
}

// last returns the end of a log.
func last(log []byte) []byte { return log[max(0, len(log)-4000):] }

// TestReproducible: the same input makes the same package.
func TestReproducible(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "agent", "program")
	var packages [2][]byte
	for i := range packages {
		o := order{agent: filepath.Join(dir, "agent"), envoy: filepath.Join(dir, "agent"), files: "files", version: "1.2.3", arch: "arm64", date: time.Unix(1, 0)}
		path, err := o.write(dir)
		if err != nil || filepath.Base(path) != "pilot-agent_1.2.3_arm64.deb" {
			t.Fatal(path, err)
		}
		if packages[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packages[0], packages[1]) {
		t.Error("the packages differ")
	}
	if _, err := (order{agent: "nowhere", files: "files", version: "1", arch: "amd64"}).write(dir); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("without a program: %v", err)
	}
}

// TestUnit: what the unit starts is what the package has.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("files/pilot-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^Exec\w+=\+?(\S+)`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != agentPath {
			t.Errorf("%s is not in the package", m[0])
		}
	}
}
