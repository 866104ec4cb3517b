// Package image maps the names of images to programs of this machine: there are no layers and no registry, a container's
// root is the machine's own with changes of its own.
package image

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Image is a local program in the part of a container image.
type Image struct {
	// Name is the image's whole name, or the name without its tag; Prefix is how names begin. One of them is set.
	Name   string `json:"name,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	// Program is the entrypoint: an absolute path, or a name to be found in PATH. A pod's command replaces it.
	Program string `json:"program,omitempty"`
	// Args are the arguments when a pod gives neither command nor args.
	Args []string `json:"args,omitempty"`
	// Env, WorkingDir, User ("1337", "1337:1337" or a name of the machine) and StopSignal ("SIGQUIT") are what an image
	// would say.
	Env        map[string]string `json:"env,omitempty"`
	WorkingDir string            `json:"workingDir,omitempty"`
	User       string            `json:"user,omitempty"`
	StopSignal string            `json:"stopSignal,omitempty"`
	// Files are files or directories of the machine, by the path where the image has them.
	Files map[string]string `json:"files,omitempty"`
}

// Images is a map from names to programs.
type Images struct {
	exact    map[string]Image
	prefixes []Image
}

// Read reads a YAML file with a list called images. Relative paths in it are relative to the file.
func Read(path string) (Images, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Images{}, fmt.Errorf("image map: %w", err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return Images{}, fmt.Errorf("image map: %w", err)
	}
	images, err := Parse(text, dir)
	if err != nil {
		return Images{}, fmt.Errorf("image map %s: %w", path, err)
	}
	return images, nil
}

// Parse is Read for text; relative paths are relative to the directory.
func Parse(text []byte, dir string) (Images, error) {
	var document struct {
		Images []Image `json:"images"`
	}
	if err := yaml.UnmarshalStrict(text, &document); err != nil {
		return Images{}, err
	}
	return New(dir, document.Images...)
}

// New makes a map of a list. Relative paths are relative to the directory.
func New(dir string, list ...Image) (Images, error) {
	images := Images{exact: make(map[string]Image, len(list))}
	for n, image := range list {
		if (image.Name == "") == (image.Prefix == "") {
			return Images{}, fmt.Errorf("images[%d]: give either name or prefix", n)
		}
		if strings.Contains(image.Program, "/") && !filepath.IsAbs(image.Program) {
			image.Program = filepath.Join(dir, image.Program)
		}
		files := make(map[string]string, len(image.Files))
		for place, file := range image.Files {
			if !filepath.IsAbs(place) {
				return Images{}, fmt.Errorf("images[%d].files: %q is no absolute path", n, place)
			}
			if !filepath.IsAbs(file) {
				file = filepath.Join(dir, file)
			}
			files[place] = file
		}
		image.Files = files
		if image.Prefix != "" {
			images.prefixes = append(images.prefixes, image)
			continue
		}
		if _, double := images.exact[image.Name]; double {
			return Images{}, fmt.Errorf("images[%d]: %q occurs twice", n, image.Name)
		}
		images.exact[image.Name] = image
	}
	return images, nil
}

// With is the map with the entries of another, which count where both have one of the same name.
func (i Images) With(others Images) Images {
	all := Images{exact: maps.Clone(i.exact), prefixes: slices.Clone(i.prefixes)}
	if all.exact == nil {
		all.exact = make(map[string]Image, len(others.exact))
	}
	maps.Copy(all.exact, others.exact)
	for _, image := range others.prefixes {
		all.prefixes = slices.DeleteFunc(all.prefixes, func(old Image) bool { return old.Prefix == image.Prefix })
		all.prefixes = append(all.prefixes, image)
	}
	return all
}

// name is what an image may be called.
var name = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+|:[0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@[a-z0-9]+:[0-9a-f]+)?$`)

// The ways in which a name leads nowhere.
var (
	ErrInvalid = errors.New("invalid reference format")
	ErrUnknown = errors.New("not in the image map")
)

// Find returns the image for a name: the same name, else the name without its tag, else the longest prefix.
func (i Images) Find(wanted string) (Image, error) {
	if !name.MatchString(wanted) {
		return Image{}, fmt.Errorf("couldn't parse image name %q: %w", wanted, ErrInvalid)
	}
	if image, ok := i.exact[wanted]; ok {
		return image, nil
	}
	bare, _, _ := strings.Cut(wanted, "@")
	if at := strings.LastIndexByte(bare, ':'); at > strings.LastIndexByte(bare, '/') {
		bare = bare[:at]
	}
	if image, ok := i.exact[bare]; ok {
		return image, nil
	}
	var best Image
	for _, image := range i.prefixes {
		if strings.HasPrefix(wanted, image.Prefix) && len(image.Prefix) > len(best.Prefix) {
			best = image
		}
	}
	if best.Prefix == "" {
		return Image{}, fmt.Errorf("image %q is %w: add it there with a local program", wanted, ErrUnknown)
	}
	return best, nil
}
