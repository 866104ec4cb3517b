// Package binaries owns the programs that a test cluster runs: etcd and the Kubernetes control plane, built from the Go
// module proxy at pinned versions.
//
// They lie in .tools of the repository, one folder per program and version, which appears whole or not at all: a folder that exists is complete and
// is not built again. Building needs nothing but Go and the module proxy. The package starts one goroutine per build, for progress, and waits for it.
// It must import nothing but the standard library, so that `make tools-cluster` on a bare machine begins with the real work.
package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The versions that are built; build/*/go.mod say the same.
const (
	KubernetesVersion = "1.36.3"
	EtcdVersion       = "3.6.8"
)

// ErrNotBuilt says that a program is not there yet.
var ErrNotBuilt = errors.New("not built: run `make tools-cluster`")

// Paths are where the programs lie.
type Paths struct {
	Etcd, APIServer, ControllerManager, Scheduler, Kubectl string
}

// set is a group of programs that one module builds.
type set struct {
	name, version string
	module        string   // folder below test/cluster
	packages      []string // one program each
	programs      []string // file names
	link          []string // -X name=value
}

func sets() []set {
	const version, client = "k8s.io/component-base/version.", "k8s.io/client-go/pkg/version."
	programs := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
	packages := make([]string, len(programs))
	for i, p := range programs {
		packages[i] = "k8s.io/kubernetes/cmd/" + p
	}
	minor := strings.Split(KubernetesVersion, ".")[1]
	// Without these a build calls itself v0.0.0 and refuses to emulate any release.
	link := []string{version + "gitVersion=v" + KubernetesVersion, version + "gitMajor=1", version + "gitMinor=" + minor,
		version + "gitTreeState=clean", client + "gitVersion=v" + KubernetesVersion}
	return []set{
		{name: "etcd", version: EtcdVersion, module: "build/etcd", packages: []string{"go.etcd.io/etcd/server/v3"}, programs: []string{"etcd"}},
		{name: "kubernetes", version: KubernetesVersion, module: "build/kubernetes", packages: packages, programs: programs, link: link},
	}
}

func (s set) dir(root string) string { return filepath.Join(root, ".tools", s.name+"-"+s.version) }

// Root is the repository's top, looked for from the working directory upwards.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/pilotmesh/pilot\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the pilot repository: no go.mod of github.com/pilotmesh/pilot above the working directory")
		}
		dir = parent
	}
}

// Find returns the programs below root, or those in elsewhere if that names a folder. The error wraps ErrNotBuilt if
// one of them is missing.
func Find(root, elsewhere string) (Paths, error) {
	found := map[string]string{}
	for _, s := range sets() {
		for _, p := range s.programs {
			dir := s.dir(root)
			if elsewhere != "" {
				dir = elsewhere
			}
			path := filepath.Join(dir, p)
			if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
				return Paths{}, fmt.Errorf("%s: %w", path, ErrNotBuilt)
			}
			found[p] = path
		}
	}
	return Paths{Etcd: found["etcd"], APIServer: found["kube-apiserver"], ControllerManager: found["kube-controller-manager"],
		Scheduler: found["kube-scheduler"], Kubectl: found["kubectl"]}, nil
}

// works runs a program for its version, to detect a broken build while its cause can still be seen.
func works(ctx context.Context, path, version string) error {
	args := []string{"--version"}
	if filepath.Base(path) == "kubectl" {
		args = []string{"version", "--client"}
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s does not run: %w\n%s", filepath.Base(path), err, out)
	}
	if !strings.Contains(string(out), version) {
		return fmt.Errorf("%s says it is %q, want %s", filepath.Base(path), strings.TrimSpace(string(out)), version)
	}
	return nil
}
