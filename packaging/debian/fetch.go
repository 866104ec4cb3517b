package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Mirror is where packages come from unless a user names another place.
const Mirror = "http://deb.debian.org"

// Store keeps fetched packages in a folder.
type Store struct {
	Dir    string
	Mirror string
}

// ErrUnavailable is the error of packages that the mirror does not have, or that cannot be reached.
var ErrUnavailable = errors.New("packages of Debian cannot be fetched")

// Fetch returns the paths of packages, in their order, and gets the missing ones.
func (s Store) Fetch(ctx context.Context, packages []Package) ([]string, error) {
	var paths []string
	missing := map[string][]Package{}
	for _, p := range packages {
		path := s.path(p)
		paths = append(paths, path)
		if verify(path, p) != nil {
			missing[p.Arch] = append(missing[p.Arch], p)
		}
	}
	for arch, of := range missing {
		if err := s.get(ctx, arch, of); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func (s Store) path(p Package) string {
	return filepath.Join(s.Dir, p.Name+"_"+strings.ReplaceAll(p.Version, ":", "%3a")+"_"+p.Arch+".deb")
}

// verify compares a file with its checksum.
func verify(path string, p Package) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != p.SHA256 {
		return fmt.Errorf("%s has the SHA-256 %s, but the list says %s: it is not the package that was tested", filepath.Base(path), got, p.SHA256)
	}
	return nil
}

// get lets apt-get download packages, and moves them into the folder when they are verified.
func (s Store) get(ctx context.Context, arch string, packages []Package) error {
	apt, done, err := s.apt(ctx, arch)
	if err != nil {
		return err
	}
	defer done()
	args := []string{"-qq", "download"}
	for _, p := range packages {
		args = append(args, p.Name+"="+p.Version)
	}
	if _, err := apt("apt-get", args...); err != nil {
		return fmt.Errorf("%w: %w\n(when a mirror has only newer versions: write packaging/debian/list.txt with `go -C packaging run . pin`, or use the archive of all versions, "+
			"DEBIAN_MIRROR=http://snapshot.debian.org/archive, as doc/releasing.md says)", ErrUnavailable, err)
	}
	for _, p := range packages {
		// The name of the file has the architecture "all" for some packages.
		found, err := filepath.Glob(filepath.Join(s.Dir, ".apt-"+arch, "files", p.Name+"_*.deb"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("apt-get left %d files for the package %s, want one", len(found), p.Name)
		}
		if err := verify(found[0], p); err != nil {
			return err
		}
		if err := os.Rename(found[0], s.path(p)); err != nil {
			return err
		}
	}
	return nil
}

// apt prepares folders for apt, apart from the machine's, and returns a function that runs one of its programs.
func (s Store) apt(ctx context.Context, arch string) (run func(program string, args ...string) (string, error), done func(), err error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, nil, errors.New("apt-get is needed to fetch packages of Debian: make the release on Debian or Ubuntu, or copy .tools/debian from a machine that has made one")
	}
	dir, err := filepath.Abs(filepath.Join(s.Dir, ".apt-"+arch))
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(dir) } // leftovers are overwritten next time
	done()
	for _, sub := range []string{"files", "lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, nil, err
		}
	}
	for name, text := range s.settings(dir, arch) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, nil, err
		}
	}
	run = func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = filepath.Join(dir, "files")
		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(dir, "conf"), "LC_ALL=C")
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("%s %s (%w): check that this machine reaches %s\n%s", program, strings.Join(args, " "), err, s.Mirror, bytes.TrimSpace(said.Bytes()))
		}
		return out.String(), nil
	}
	if _, err := run("apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update"); err != nil {
		done()
		return nil, nil, err
	}
	return run, done, nil
}

// settings returns apt's files. The list of pinned packages, and not apt's keys, says which content is right; a machine need not have Debian's keys.
func (s Store) settings(dir, arch string) map[string]string {
	main, security := s.Mirror+"/debian", s.Mirror+"/debian-security"
	if at, ok := strings.CutPrefix(s.Mirror, "http://snapshot.debian.org/archive"); ok {
		day := strings.Trim(at, "/")
		if day == "" {
			day = snapshot(list)
		}
		main, security = "http://snapshot.debian.org/archive/debian/"+day, "http://snapshot.debian.org/archive/debian-security/"+day
	}
	return map[string]string{
		"status": "",
		"sources": "deb [trusted=yes] " + main + " " + Suite + " main\n" +
			"deb [trusted=yes] " + security + " " + Suite + "-security main\n",
		"conf": fmt.Sprintf(`APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Sandbox::User "root";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Dir::State "%[1]s";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
Dir::Etc::sourcelist "%[1]s/sources";
Dir::Etc::sourceparts "/dev/null";
`, dir, arch),
	}
}

// snapshot returns the day at which a list was made, as the archive of all versions names it.
func snapshot(list string) string {
	if m := regexp.MustCompile(`(?m)^# Snapshot: (\d{8}T\d{6}Z)$`).FindStringSubmatch(list); m != nil {
		return m[1]
	}
	return ""
}

// uri is a line of `apt-get download --print-uris`.
var uri = regexp.MustCompile(`(?m)^'[^']+' (\S+)_(\S+)_\S+\.deb \d+ SHA256:([0-9a-f]{64})$`)

// Pin returns the text of a list with the newest versions of all packages.
func (s Store) Pin(ctx context.Context, day string) (string, error) {
	text := "# The packages of Debian that images have: ARCHITECTURE NAME VERSION SHA256. `go -C packaging run . pin` writes this file.\n# Snapshot: " + day + "\n"
	for _, arch := range []string{"amd64", "arm64"} {
		apt, done, err := s.apt(ctx, arch)
		if err != nil {
			return "", err
		}
		names := append(append([]string{"download", "--print-uris"}, groups[Base]...), groups[Proxy]...)
		out, err := apt("apt-get", names...)
		done()
		if err != nil {
			return "", err
		}
		found := uri.FindAllStringSubmatch(out, -1)
		if want := len(names) - 2; len(found) != want {
			return "", fmt.Errorf("apt-get knows %d of %d packages for %s:\n%s", len(found), want, arch, out)
		}
		for _, m := range found {
			version, err := url.PathUnescape(m[2])
			if err != nil {
				return "", err
			}
			text += strings.Join([]string{arch, m[1], version, m[3]}, " ") + "\n"
		}
	}
	_, err := parse(text)
	return text, err
}
