package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// plainLayers are the media types of layers that are a module. All other layers are archives.
var plainLayers = map[types.MediaType]bool{
	"application/vnd.module.wasm.content.layer.v1+wasm": true,
	"application/vnd.wasm.content.layer.v1+wasm":        true,
	"application/wasm": true,
}

// tryImage fetches a module from a registry.
func (c *Cache) tryImage(ctx context.Context, file *os.File, image name.Reference, m Module) (string, error) {
	options := []remote.Option{
		remote.WithTransport(c.web.secure), remote.WithUserAgent("pilot-agent"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes(), // the cache itself tries again
	}
	if m.Secret != nil {
		secret, err := parseSecret(m.Secret)
		if err != nil {
			return "", err
		}
		options = append(options, remote.WithAuthFromKeychain(secret))
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return "", err
	}
	d, err := puller.Get(ctx, image)
	if err != nil {
		return "", err
	}
	if want := m.SHA256; want != "" && d.Digest.Hex != want {
		return "", permanent{fmt.Errorf("the digest of the image is sha256:%s, but %.64q is wanted; correct sha256, or find out who has changed the image", d.Digest.Hex, want)}
	}
	keys := []string{urlKey(m), imageKey(d.Digest.Hex)}
	if path := c.pulled(d.Digest.Hex, m.Version, keys); path != "" {
		os.Remove(file.Name()) //nolint:errcheck // or at the next start
		return path, nil
	}
	layer, plain, err := pluginLayer(d)
	if err != nil {
		return "", err
	}
	sum, err := c.pull(ctx, file, puller, image.Context().Digest(layer.String()), plain)
	if err != nil {
		return "", err
	}
	return c.keep(file, sum, m.Version, keys...)
}

// pulled returns the path of the module of an image if the cache has it; else the empty string.
func (c *Cache) pulled(digest, version string, keys []string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.index[imageKey(digest)].SHA256
	path := c.whole(sum)
	if path != "" {
		c.note(sum, version, keys...)
	}
	return path
}

// pull stores the module of a layer.
func (c *Cache) pull(ctx context.Context, file *os.File, puller *remote.Puller, layer name.Digest, plain bool) (string, error) {
	l, err := puller.Layer(ctx, layer)
	if err != nil {
		return "", err
	}
	blob, err := l.Compressed()
	if err != nil {
		return "", err
	}
	defer blob.Close()
	all := limit(blob, c.maxModule)
	var in io.Reader = all
	if !plain {
		if in, err = openLayer(all, c.maxModule); err != nil {
			return "", err
		}
	}
	sum, err := store(disk{file}, in, c.maxModule)
	if err != nil {
		return "", err
	}
	// The digest of the layer is checked at its end.
	_, err = io.Copy(io.Discard, all)
	return sum, err
}

// pluginLayer returns the digest of the layer with the module, and whether the layer is the module itself. It is the first layer with one
// of the types plainLayers, or else the last layer.
func pluginLayer(d *remote.Descriptor) (v1.Hash, bool, error) {
	image, err := single(d)
	if err != nil {
		return v1.Hash{}, false, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return v1.Hash{}, false, permanent{errors.New("the manifest of the image is damaged")}
	}
	for _, l := range manifest.Layers {
		if plainLayers[l.MediaType] {
			return l.Digest, true, nil
		}
	}
	if len(manifest.Layers) == 0 {
		return v1.Hash{}, false, permanent{errors.New("the image has no layer")}
	}
	last := manifest.Layers[len(manifest.Layers)-1]
	if !last.MediaType.IsLayer() || !strings.HasSuffix(string(last.MediaType), "gzip") {
		return v1.Hash{}, false, permanent{fmt.Errorf("the last layer of the image has the type %.80q, and not the type of a module or of a compressed archive; build the image as Istio's documentation says", last.MediaType)}
	}
	return last.Digest, false, nil
}

// single returns an image, or from an index of images the one for Wasm.
func single(d *remote.Descriptor) (v1.Image, error) {
	if !d.MediaType.IsIndex() {
		return d.Image()
	}
	index, err := d.ImageIndex()
	if err != nil {
		return nil, err
	}
	all, err := index.IndexManifest()
	if err != nil {
		return nil, permanent{errors.New("the index of images is damaged")}
	}
	for _, m := range all.Manifests {
		if m.Platform != nil && strings.HasPrefix(m.Platform.Architecture, "wasm") || len(all.Manifests) == 1 {
			return index.Image(m.Digest)
		}
	}
	return d.Image() // that for the usual platform
}
