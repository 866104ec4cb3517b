package wasm

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// reference is where a module is. One of its fields is set.
type reference struct {
	image name.Reference
	web   *url.URL
	file  string
}

// parse reads the URL of a module, as WasmPlugins have it. A URL without a scheme names an image.
func (c *Cache) parse(text string) (reference, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "oci", text
	}
	switch scheme {
	case "oci":
		options := []name.Option{name.WithDefaultRegistry("index.docker.io")}
		if host, _, ok := strings.Cut(rest, "/"); ok && c.insecure(host) {
			options = append(options, name.Insecure)
		}
		image, err := name.ParseReference(rest, options...)
		if err != nil {
			return reference{}, errors.New("it is not the address of an image, such as oci://registry.example.com/plugin:1.0")
		}
		return reference{image: image}, nil
	case "http", "https":
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" {
			return reference{}, fmt.Errorf("it is not an address such as %s://www.example.com/plugin.wasm", scheme)
		}
		return reference{web: u}, nil
	case "file":
		if !filepath.IsAbs(rest) {
			return reference{}, errors.New("the path of a file must be absolute, such as file:///opt/plugin.wasm")
		}
		return reference{file: filepath.Clean(rest)}, nil
	}
	return reference{}, fmt.Errorf("its scheme is %.20q, and the known ones are oci, https, http and file", scheme)
}

// host is the registry or server of a module.
func (r reference) host() string {
	if r.image != nil {
		return r.image.Context().RegistryStr()
	}
	return r.web.Host
}

// moving reports whether the module at a reference is expected to change: whether it is an image with the tag latest.
func (r reference) moving() bool {
	tag, ok := r.image.(name.Tag)
	return ok && tag.TagStr() == name.DefaultTag
}

// insecure reports whether the operator trusts a host without TLS (WASM_INSECURE_REGISTRIES).
func (c *Cache) insecure(host string) bool {
	return slices.Contains(c.o.Insecure, "*") || c.named(host)
}

// named reports whether the operator has listed a host, with its port or without. Only a listed host may have a loopback address.
func (c *Cache) named(host string) bool {
	bare, _, err := net.SplitHostPort(host)
	return slices.Contains(c.o.Insecure, host) || err == nil && slices.Contains(c.o.Insecure, bare)
}

// shown returns a URL without credentials and without its query, which may hold some.
func shown(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "oci", text
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	host, path, more := strings.Cut(rest, "/")
	if at := strings.LastIndex(host, "@"); at >= 0 {
		host = host[at+1:]
	}
	if more {
		host += "/" + path
	}
	return scheme + "://" + host
}
