// Package image makes OCI images without a container engine, writes them as OCI layouts, and pushes them.
//
// Invariants: the same layers and settings give the same digest, and a layout appears whole or not at all. The package starts no goroutines; the
// library that pushes ends its own before it returns.
package image

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/pilotmesh/pilot/packaging/tree"
)

// Settings are what a container of an image starts with, and what describes the image.
type Settings struct {
	Entrypoint []string
	// User is the user and the group, as numbers: Kubernetes cannot check names against runAsNonRoot.
	User   string
	Labels map[string]string
	Date   time.Time
}

// path is where the programs of images are found.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Layer is one layer and the words about it in the history of its images.
type Layer struct {
	layer v1.Layer
	about string
	date  time.Time
}

// NewLayer writes a layer into a folder, where it must stay until the images are written.
func NewLayer(dir, about string, files tree.Tree, date time.Time) (Layer, error) {
	f, err := os.CreateTemp(dir, "layer-*.tar.gz")
	if err != nil {
		return Layer{}, err
	}
	z := gzip.NewWriter(f) // no name, and no time
	if err := errors.Join(files.Write(z, date), z.Close(), f.Close()); err != nil {
		return Layer{}, fmt.Errorf("the layer with %s: %w", about, err)
	}
	l, err := tarball.LayerFromFile(f.Name(), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return Layer{}, fmt.Errorf("the layer with %s: %w", about, err)
	}
	return Layer{l, about, date}, nil
}

// New returns the image of layers for an architecture of Linux.
func New(arch string, s Settings, layers ...Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var adds []mutate.Addendum
	for _, l := range layers {
		adds = append(adds, mutate.Addendum{Layer: l.layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: l.date.UTC()}, CreatedBy: l.about}})
	}
	i, err := mutate.Append(base, adds...)
	if err != nil {
		return nil, err
	}
	config, err := i.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: s.Date.UTC()}
	if arch == "arm64" {
		config.Variant = "v8"
	}
	config.Config = v1.Config{Entrypoint: s.Entrypoint, User: s.User, WorkingDir: "/", Env: []string{path}, Labels: s.Labels}
	return mutate.ConfigFile(i, config)
}

// Index joins the images of several architectures under one name.
func Index(images map[string]v1.Image, order []string, annotations map[string]string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range order {
		i, there := images[arch]
		if !there {
			return nil, fmt.Errorf("there is no image for %s", arch)
		}
		platform := &v1.Platform{OS: "linux", Architecture: arch}
		if arch == "arm64" {
			platform.Variant = "v8"
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: platform}})
	}
	annotated, ok := mutate.Annotations(index, annotations).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("the index takes no annotations")
	}
	return annotated, nil
}

// Write writes an index into a folder of its own, as an OCI layout with one entry, whose name is the tag.
func Write(dir, tag string, index v1.ImageIndex) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(parent, ".layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	l, err := layout.Write(temporary, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return errors.Join(os.Chmod(temporary, 0o755), os.Rename(temporary, dir))
}

// Push pushes an index to REGISTRY/NAME:TAG, with the credentials of the machine's Docker configuration, and returns its name by digest.
func Push(ctx context.Context, registry, repository, tag string, index v1.ImageIndex) (string, error) {
	ref, err := name.NewTag(registry + "/" + repository + ":" + tag)
	if err != nil {
		return "", fmt.Errorf("%s/%s:%s is no name of an image: give -push HOST[:PORT][/FOLDER] (%w)", registry, repository, tag, err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("pilot-release")); err != nil {
		return "", fmt.Errorf("pushing %v: %w (log in first: docker login or podman login writes the credentials that are used)", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	return ref.Context().Digest(digest.String()).String(), nil
}
