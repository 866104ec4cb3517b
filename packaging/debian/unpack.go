package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/blakesmith/ar"
	"github.com/ulikunitz/xz"

	"github.com/pilotmesh/pilot/packaging/tree"
)

// limit is the size that a file of a package may have: the largest one here has 2 MB.
const limit = 64 << 20

// Unpack returns the files of packages as they lie on a system, without manuals, translations and character sets.
func Unpack(paths []string) (tree.Tree, error) {
	all := tree.Tree{}
	for _, p := range paths {
		files, err := unpack(p)
		if err == nil {
			err = all.Join(files)
		}
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", path.Base(p), err)
		}
	}
	finish(all)
	return all, nil
}

// unpack reads one package: an archive with two archives, control and data.
func unpack(name string) (tree.Tree, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files := tree.Tree{}
	members := ar.NewReader(f)
	for {
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch member := strings.TrimRight(h.Name, "/"); {
		case strings.HasPrefix(member, "control.tar"):
			err = control(members, member, files)
		case strings.HasPrefix(member, "data.tar"):
			err = data(members, member, files)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	if len(files) == 0 {
		return nil, errors.New("it has no files that images need")
	}
	return files, nil
}

// inflate returns the content of a compressed tar, by the end of its name.
func inflate(r io.Reader, name string) (*tar.Reader, error) {
	var err error
	switch path.Ext(name) {
	case ".xz":
		r, err = xz.NewReader(r)
	case ".gz":
		r, err = gzip.NewReader(r)
	case ".tar":
	default:
		return nil, fmt.Errorf("%s is compressed in another way than .xz and .gz", name)
	}
	if err != nil {
		return nil, err
	}
	return tar.NewReader(r), nil
}

// each calls take for the files of a part of a package, in their order, until it fails.
func each(r io.Reader, name string, take func(in io.Reader, h *tar.Header) error) error {
	in, err := inflate(r, name)
	if err != nil {
		return err
	}
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := take(in, h); err != nil {
			return err
		}
	}
}

// control keeps the description of the package where scanners of images look for it.
func control(r io.Reader, name string, files tree.Tree) error {
	return each(r, name, func(in io.Reader, h *tar.Header) error {
		if path.Clean(h.Name) != "control" {
			return nil
		}
		text, err := content(in, h)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		_, name, ok := strings.Cut(first, "Package: ")
		if !ok || strings.ContainsAny(name, "/ ") {
			return fmt.Errorf("its description begins with %q", first)
		}
		files.Text("var/lib/dpkg/status.d/"+name, string(text))
		return nil
	})
}

// data adds the files that images need.
func data(r io.Reader, name string, files tree.Tree) error {
	return each(r, name, func(in io.Reader, h *tar.Header) error {
		at := merged(strings.TrimPrefix(path.Clean("/"+h.Name), "/"))
		if !wanted(at) {
			return nil
		}
		switch h.Typeflag {
		case tar.TypeReg:
			text, err := content(in, h)
			if err != nil {
				return err
			}
			files[at] = tree.File{Mode: fs.FileMode(h.Mode).Perm(), Data: text}
		case tar.TypeSymlink:
			files.Link(at, h.Linkname)
		case tar.TypeDir: // folders come with their content
		default:
			return fmt.Errorf("%s is neither a file, a folder nor a symbolic link", h.Name)
		}
		return nil
	})
}

func content(r io.Reader, h *tar.Header) ([]byte, error) {
	if h.Size > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", h.Name, h.Size, limit)
	}
	return io.ReadAll(io.LimitReader(r, h.Size))
}

// folders of the root are links into usr.
var folders = []string{"bin", "lib", "lib64", "sbin"}

// merged returns where a path of the root lies.
func merged(at string) string {
	if first, _, _ := strings.Cut(at, "/"); slices.Contains(folders, first) {
		return "usr/" + at
	}
	return at
}

// wanted says whether images need a file.
func wanted(at string) bool {
	switch {
	case strings.HasPrefix(at, "usr/share/doc/"):
		return path.Base(at) == "copyright"
	case strings.HasPrefix(at, "usr/share/common-licenses/"), strings.HasPrefix(at, "usr/share/ca-certificates/"):
		return true
	case strings.HasSuffix(at, "tables-apply"), strings.HasPrefix(at, "usr/share/"), strings.HasPrefix(at, "var/"), strings.Contains(at, "/gconv/"), strings.HasPrefix(at, "usr/lib/systemd/"):
		return false
	case strings.HasPrefix(at, "etc/"):
		return slices.Contains([]string{"etc/debian_version", "etc/os-release", "etc/protocols", "etc/rpc", "etc/services", "etc/ethertypes"}, at)
	case strings.HasPrefix(at, "usr/"):
		return true
	}
	return false
}

// finish does what the scripts of the packages would do: one file with all roots, the usual names of iptables, and the links of the root.
func finish(files tree.Tree) {
	var roots bytes.Buffer
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(at, "usr/share/ca-certificates/") {
			if path.Ext(at) == ".crt" {
				roots.Write(bytes.TrimRight(files[at].Data, "\n"))
				roots.WriteByte('\n')
			}
			delete(files, at)
		}
	}
	if roots.Len() > 0 {
		files.Text("etc/ssl/certs/ca-certificates.crt", roots.String())
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			if _, there := files["usr/sbin/"+family+"-nft"+suffix]; there {
				files.Link("usr/sbin/"+family+suffix, family+"-nft"+suffix)
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if first, rest, _ := strings.Cut(at, "/"); first == "usr" {
			if second, _, _ := strings.Cut(rest, "/"); slices.Contains(folders, second) {
				files.Link(second, "usr/"+second)
			}
		}
	}
}
