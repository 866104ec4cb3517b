// Package links resolves symbolic links and returns the path of every link on the way. A program that watches a file must also
// watch each link that leads to it, because Kubernetes replaces mounted files by replacing a link to their directory.
//
// Goroutines: none. The package has no state.
package links

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is the largest number of links that are followed, which is Linux's limit.
const maxLinks = 40

// Follow resolves the links in an absolute path. over contains the real paths of each link on the way and of the target; a change
// of any of them may change the result. If there is an error, the last element of over is the path that is missing or invalid.
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
