package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/packaging/debian"
)

// release is one run of the command.
type release struct {
	version, root, out, push string
	arches                   []string
	envoyVersion             string
	debian                   debian.Store
	// envoys are other Envoys than the fetched ones, by architecture, for tests.
	envoys map[string]string
	date   time.Time
	say    io.Writer
	// work is a folder for files between two steps.
	work string
}

// versions are the versions that a release may have: they become tags of images, names of files and versions of packages.
var versions = regexp.MustCompile(`^\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

func releaseCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("packaging release", flag.ExitOnError)
	r := release{say: os.Stdout}
	f.StringVar(&r.version, "version", "", "the version: 1.2.3, or 1.2.3-rc.1 (also alpha, beta)")
	f.StringVar(&r.root, "root", "..", "the folder of the repository")
	f.StringVar(&r.out, "o", "../bin/release", "the folder for the release; its old content is removed")
	f.StringVar(&r.push, "push", "", "a registry, HOST[:PORT][/FOLDER], to which the images are pushed")
	f.StringVar(&r.envoyVersion, "envoy", "", "the version of the Envoys in .tools, which test/tools fetches")
	f.StringVar(&r.debian.Dir, "debian", "../.tools/debian", "the folder for packages of Debian")
	f.StringVar(&r.debian.Mirror, "mirror", cmp.Or(os.Getenv("DEBIAN_MIRROR"), debian.Mirror), "where packages of Debian come from")
	arches := f.String("arches", "amd64,arm64", "architectures of images, packages and archives")
	if err := f.Parse(args); err != nil {
		return err
	}
	r.arches = strings.Split(*arches, ",")
	if err := r.check(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "pilot-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r.work = work
	return r.make(ctx)
}

// check refuses wrong settings before anything is made, and finds the time of the release.
func (r *release) check(ctx context.Context) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("%q is no version of a release: make release VERSION=1.2.3, or 1.2.3-rc.1", r.version)
	}
	for _, folder := range []*string{&r.root, &r.out, &r.debian.Dir} {
		abs, err := filepath.Abs(*folder)
		if err != nil {
			return err
		}
		*folder = abs
	}
	for _, arch := range r.arches {
		if arch != "amd64" && arch != "arm64" {
			return fmt.Errorf("there is no release for %q: -arches takes amd64 and arm64", arch)
		}
		if _, err := os.Stat(r.envoy(arch)); err != nil {
			return fmt.Errorf("the Envoy for %s: %w (`make release` gets it: go -C test run ./tools -for linux/%s)", arch, err, arch)
		}
	}
	var err error
	r.date, err = r.time(ctx)
	return err
}

// time is the time of every file: SOURCE_DATE_EPOCH, or the time of the commit.
func (r *release) time(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		cmd := exec.CommandContext(ctx, "git", "-C", r.root, "log", "-1", "--format=%ct")
		out, err := cmd.Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit (git log): %w; outside of a clone, set SOURCE_DATE_EPOCH to seconds since 1970", err)
		}
		text = string(out)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0), nil
}

// envoy is the path of the Envoy for an architecture.
func (r *release) envoy(arch string) string {
	if own := r.envoys[arch]; own != "" {
		return own
	}
	return filepath.Join(r.root, ".tools", "release", "envoy-"+r.envoyVersion+"-linux-"+arch, "envoy")
}

// make makes the release in a folder beside the target, and moves it there when it is complete.
func (r *release) make(ctx context.Context) error {
	final := r.out
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return err
	}
	staged, err := os.MkdirTemp(filepath.Dir(final), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	r.out = staged
	images, err := r.all(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(final), os.Chmod(staged, 0o755), os.Rename(staged, final)); err != nil {
		return err
	}
	fmt.Fprintf(r.say, "release: Pilot %s is in %s\n", r.version, final)
	if r.push == "" {
		return nil
	}
	return r.pushAll(ctx, images)
}

// all makes the files of the release.
func (r *release) all(ctx context.Context) (indexes, error) {
	if err := r.build(ctx); err != nil {
		return nil, err
	}
	if err := r.archives(ctx); err != nil {
		return nil, err
	}
	for _, arch := range r.arches {
		if err := r.deb(arch); err != nil {
			return nil, err
		}
	}
	images, err := r.images(ctx)
	if err != nil {
		return nil, err
	}
	return images, r.checksums()
}

// deb makes the Debian package of the agent, with its Envoy.
func (r *release) deb(arch string) error {
	o := order{
		agent: r.program("pilot-agent", platform{"linux", arch}), envoy: r.envoy(arch), files: filepath.Join(r.root, "packaging", "files"),
		// In versions of Debian a tilde comes before the end, so that a candidate is older than its release.
		version: strings.Replace(r.version, "-", "~", 1), arch: arch, date: r.date,
	}
	path, err := o.write(r.out)
	if err == nil {
		r.report("%s", filepath.Base(path))
	}
	return err
}

func (r *release) report(format string, args ...any) {
	fmt.Fprintf(r.say, "release: "+format+"\n", args...)
}

// checksums writes SHA256SUMS about all files of the folder but the layouts of images, whose files are named by their checksums.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		sum, err := sha256Of(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+e.Name()+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
