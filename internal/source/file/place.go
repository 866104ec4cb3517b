package file

import (
	"bytes"
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
)

// maxPlaced is how many bytes of files one call of Place reads.
const maxPlaced = 16 << 20

// Place sets the positions of problems that were found later about objects of the directory to the positions of their fields in the
// present files. A problem keeps its position if its file cannot be read, or if the document of its object is not in the file or
// not valid: the lines would belong to another version. Place may be called on any goroutine.
func (s *Source) Place(problems []api.Problem) {
	left := int64(maxPlaced)
	byFile := map[string][]*api.Problem{}
	for i := range problems {
		p := &problems[i]
		byFile[p.Position.File] = append(byFile[p.Position.File], p)
	}
	for i := range problems { // in the order of the problems, not of the map
		path := problems[i].Position.File
		wanted := byFile[path]
		delete(byFile, path)
		if len(wanted) == 0 || !s.reads(path) {
			continue
		}
		data, ok := content(path, left)
		if !ok {
			continue
		}
		left -= int64(len(data))
		place(path, data, wanted)
	}
}

// reads reports whether a file is one of the directory.
func (s *Source) reads(path string) bool {
	if s.o.Dir == "" {
		return false
	}
	rest, err := filepath.Rel(s.o.Dir, path)
	return err == nil && filepath.IsLocal(rest)
}

// content reads a file that has at most so many bytes.
func content(path string, most int64) ([]byte, bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > min(most, api.MaxFile) {
		return nil, false
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer func(f fs.File) { _ = f.Close() }(f)
	data, err := io.ReadAll(io.LimitReader(f, info.Size()))
	return data, err == nil
}

// place sets the positions of problems about objects of one file.
func place(path string, data []byte, wanted []*api.Problem) {
	texts, refused := api.Split(path, data)
	if refused != nil {
		return
	}
	byObject := map[api.Key][]*api.Problem{}
	for _, p := range wanted {
		k := p.Object
		k.Cluster = "" // documents do not name it
		byObject[k] = append(byObject[k], p)
	}
	for _, t := range likelyFirst(texts, wanted) {
		if len(byObject) == 0 {
			return
		}
		if !mentions(t.Bytes(), byObject) {
			continue
		}
		for _, d := range t.Decode(path) {
			problems := byObject[d.Key]
			text := d
			d.Check()
			if len(problems) == 0 || d.Object == nil && d.Other == nil {
				continue
			}
			delete(byObject, d.Key) // the first document counts
			list := make([]api.Problem, len(problems))
			for i, p := range problems {
				list[i] = *p
			}
			text.Locate(list)
			for i, p := range problems {
				p.Position = list[i].Position
			}
		}
	}
}

// likelyFirst orders texts so that those at the lines of the problems come first. A file of a thousand objects that changed in a few of
// them is then not decoded as a whole.
func likelyFirst(texts []api.Text, problems []*api.Problem) []api.Text {
	at := map[int]bool{}
	for _, p := range problems {
		after, _ := slices.BinarySearchFunc(texts, p.Position.Line+1, func(t api.Text, line int) int { return cmp.Compare(t.Line(), line) })
		at[after-1] = true
	}
	var likely, others []api.Text
	for i, t := range texts {
		if at[i] {
			likely = append(likely, t)
		} else {
			others = append(others, t)
		}
	}
	return append(likely, others...)
}

// mentions reports whether a text has the name of one of the objects, so that it may be worth decoding.
func mentions(text []byte, objects map[api.Key][]*api.Problem) bool {
	for k := range objects {
		if name, _, _ := strings.Cut(k.Name, "."); bytes.Contains(text, []byte(name)) {
			return true
		}
	}
	return false
}
