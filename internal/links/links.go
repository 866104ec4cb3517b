// Package links follows symbolic links and remembers the way. Whoever watches a file must watch each link that leads to
// it: Kubernetes replaces mounted files by swapping a link to their directory.
//
// The package is a function without state. It must not import anything of this project.
package links

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many links may follow each other: what Linux allows.
const maxLinks = 40

// Follow follows the links in an absolute path. over names, as real paths, each link on the way and the target: a
// change of any of them may lead elsewhere. With an error, the last of over is what is missing or broken.
func Follow(path string) (real string, over []string, err error) {
	rest := split(path)
	real = string(filepath.Separator)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, name)
		info, err := os.Lstat(next)
		if err != nil {
			return "", append(over, next), err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			real = next
			continue
		}
		over = append(over, next)
		if links++; links > maxLinks {
			return "", over, &fs.PathError{Op: "follow", Path: path, Err: errors.New("too many symbolic links")}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", over, err
		}
		if filepath.IsAbs(target) {
			real = string(filepath.Separator)
		}
		rest = append(split(target), rest...)
	}
	return real, append(over, real), nil
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}
