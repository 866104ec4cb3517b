package links

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree makes files and links below a new folder. A link's content begins with "->".
func tree(t *testing.T, entries ...[2]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e[0])
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if target, ok := cutArrow(e[1]); ok {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(e[1]), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func cutArrow(s string) (target string, ok bool) {
	if len(s) < 2 || s[:2] != "->" {
		return "", false
	}
	return s[2:], true
}

func TestFollow(t *testing.T) {
	mounted := [][2]string{ // as Kubernetes mounts a ConfigMap
		{"..2026/mesh.yaml", "a"}, {"..data", "->..2026"}, {"mesh.yaml", "->..data/mesh.yaml"},
	}
	for _, c := range []struct {
		name, path string
		entries    [][2]string
		real       string
		over       []string
		err        error
	}{
		{"a file", "f", [][2]string{{"f", "a"}}, "f", []string{"f"}, nil},
		{"a mounted ConfigMap", "mesh.yaml", mounted, "..2026/mesh.yaml", []string{"mesh.yaml", "..data", "..2026/mesh.yaml"}, nil},
		{"a link up and down", "a/l", [][2]string{{"a/l", "->../b/../f"}, {"f", "a"}, {"b/x", "a"}}, "f", []string{"a/l", "f"}, nil},
		{"a link to nothing", "l", [][2]string{{"l", "->gone/f"}}, "", []string{"l", "gone"}, fs.ErrNotExist},
		{"a missing file", "gone", nil, "", []string{"gone"}, fs.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, c.entries...)
			real, over, err := Follow(filepath.Join(dir, c.path))
			for i := range over {
				over[i], _ = filepath.Rel(dir, over[i])
			}
			want := ""
			if c.err == nil {
				want = filepath.Join(dir, c.real)
			}
			if real != want || !slices.Equal(over, c.over) || !errors.Is(err, c.err) {
				t.Errorf("real %q, over %q, error %v; want %q, %q, %v", real, over, err, want, c.over, c.err)
			}
		})
	}
}

// TestAbsoluteLink: a link to an absolute path begins at the root again.
func TestAbsoluteLink(t *testing.T) {
	to := tree(t, [2]string{"f", "a"})
	from := tree(t, [2]string{"l", "->" + filepath.Join(to, "f")})
	if real, over, err := Follow(filepath.Join(from, "l")); real != filepath.Join(to, "f") || len(over) != 2 || err != nil {
		t.Errorf("real %q, over %q, error %v", real, over, err)
	}
}

// TestCircle: links in a circle end with an error, as in the kernel.
func TestCircle(t *testing.T) {
	dir := tree(t, [2]string{"a", "->b"}, [2]string{"b", "->a"})
	var path *fs.PathError
	if _, over, err := Follow(filepath.Join(dir, "a")); !errors.As(err, &path) || len(over) != maxLinks+1 {
		t.Errorf("%d links were followed, error %v", len(over), err)
	}
}
