package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/packaging/sbom"
	"github.com/pilotmesh/pilot/packaging/tree"
)

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

// programs are the programs of the product.
var programs = []string{"pilot-agent", "pilot-cni", "pilot-discovery", "pilotctl"}

// platforms returns where the programs of a release run.
func (r *release) platforms() []platform {
	var all []platform
	for _, arch := range r.arches {
		all = append(all, platform{"linux", arch})
	}
	return all
}

// program is the path of a built program.
func (r *release) program(name string, p platform) string {
	return filepath.Join(r.work, p.os+"-"+p.arch, name)
}

// build builds all programs for all platforms, and for this machine, where they write pages about themselves.
func (r *release) build(ctx context.Context) error {
	for _, name := range programs {
		all := r.platforms()
		if here := (platform{runtime.GOOS, runtime.GOARCH}); !slices.Contains(all, here) {
			all = append(all, here)
		}
		for _, p := range all {
			r.report("building %s for %s/%s", name, p.os, p.arch)
			if err := compile(ctx, r.root, r.work, r.version, name, r.program(name, p), p); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile builds one program so that the result depends on the source, the version and Go's version alone. The version comes by an overlay over a file
// of the source, as package run explains. Without the traces of gRPC (grpcnotrace) no program but pilotctl and pilot-agent has text/template, so that the
// linker leaves out methods without a caller.
func compile(ctx context.Context, root, work, version, name, out string, p platform) error {
	text, overlay := filepath.Join(work, "version.txt"), filepath.Join(work, "overlay.json")
	rule, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "internal", "run", "version.txt"): text}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(text, []byte("v"+version+"\n"), 0o644), os.WriteFile(overlay, rule, 0o644), os.MkdirAll(filepath.Dir(out), 0o755)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto", "-overlay", overlay, "-tags=grpcnotrace", "-ldflags=-s -w -buildid=", "-o", out, "./cmd/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GODEBUG=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s for %s/%s: %w\n%s", name, p.os, p.arch, err, said)
	}
	return nil
}

// archives makes one archive per program and platform: the program, its pages, completions for shells, and the licence.
func (r *release) archives(ctx context.Context) error {
	for _, name := range programs {
		pages, err := r.pages(ctx, name)
		if err != nil {
			return err
		}
		for _, p := range r.platforms() {
			base := strings.Join([]string{name, r.version, p.os, p.arch}, "_")
			files := tree.Tree{}
			for at, f := range pages {
				files[base+"/"+at] = f
			}
			files.Program(base+"/"+name, r.program(name, p))
			if err := r.archive(base+".tar.gz", files); err != nil {
				return err
			}
			list, err := sbom.Write(sbom.Contents{Name: name, Version: r.version, Arch: p.os + "-" + p.arch, Date: r.date, Programs: []string{r.program(name, p)}})
			if err == nil {
				err = os.WriteFile(filepath.Join(r.out, base+".spdx.json"), list, 0o644)
			}
			if err != nil {
				return err
			}
			r.report("%s.tar.gz", base)
		}
	}
	return nil
}

// pages returns the files about a program, which the program writes itself.
func (r *release) pages(ctx context.Context, name string) (tree.Tree, error) {
	dir := filepath.Join(r.work, "pages", name)
	cmd := exec.CommandContext(ctx, r.program(name, platform{runtime.GOOS, runtime.GOARCH}), "collateral", "--man", "--bash", "--zsh", "-o", dir)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pages about %s: %w\n%s", name, err, said)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := tree.Tree{"LICENSE": {Mode: 0o644, Source: filepath.Join(r.root, "LICENSE")}}
	for _, e := range entries {
		folder := "completions/"
		if strings.HasSuffix(e.Name(), ".1") {
			folder = "man/man1/"
		}
		files[folder+e.Name()] = tree.File{Mode: 0o644, Source: filepath.Join(dir, e.Name())}
	}
	return files, nil
}

// archive writes a compressed tar.
func (r *release) archive(name string, files tree.Tree) error {
	f, err := os.OpenFile(filepath.Join(r.out, name), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(files.Write(z, r.date), z.Close(), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func sha256Of(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
