package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/pilotmesh/pilot/packaging/debian"
	"github.com/pilotmesh/pilot/packaging/image"
	"github.com/pilotmesh/pilot/packaging/sbom"
	"github.com/pilotmesh/pilot/packaging/tree"
)

// proxyID is the user and the group of all images: charts and injection say the same number, and capture spares its connections.
const proxyID = 1337

// product is one image of the release, under the name that charts and injection use.
type product struct {
	name, about, program string
	groups               []string
	envoy                bool
	// folders belong to the user: the program writes to them where no volume is mounted.
	folders []string
}

// products are the images. The names and the paths of programs are known to manifests/charts, internal/inject and the mesh configuration (binaryPath).
var products = []product{
	{name: "pilot", about: "The control plane of the Pilot service mesh", program: "pilot-discovery", groups: []string{debian.Base}, folders: []string{"var/lib/pilot"}},
	{
		name: "proxyv2", about: "The proxy of the Pilot service mesh: agent and Envoy", program: "pilot-agent", groups: []string{debian.Base, debian.Proxy}, envoy: true,
		folders: []string{"etc/istio/proxy", "etc/certs", "var/lib/istio/data", "var/run/secrets/tokens", "var/run/secrets/workload-spiffe-uds", "var/run/secrets/credential-uds"},
	},
	// Charts run it as root: it makes the rules of pods, with the programs that the proxy's image has, too.
	{name: "install-cni", about: "The CNI plugin of the Pilot service mesh", program: "pilot-cni", groups: []string{debian.Base, debian.Proxy}},
}

// indexes are the finished images by name.
type indexes map[string]v1.ImageIndex

// images makes the images of all architectures, with lists of their contents.
func (r *release) images(ctx context.Context) (indexes, error) {
	made := indexes{}
	var digests string
	for _, p := range products {
		byArch := map[string]v1.Image{}
		for _, arch := range r.arches {
			i, err := r.image(ctx, p, arch)
			if err != nil {
				return nil, err
			}
			byArch[arch] = i
		}
		index, err := image.Index(byArch, r.arches, p.labels(r.version, r.date))
		if err == nil {
			err = image.Write(filepath.Join(r.out, "images", p.name), r.version, index)
		}
		if err != nil {
			return nil, err
		}
		digest, err := index.Digest()
		if err != nil {
			return nil, err
		}
		digests += p.name + ":" + r.version + " " + digest.String() + "\n"
		r.report("image %s:%s %v", p.name, r.version, digest)
		made[p.name] = index
	}
	return made, os.WriteFile(filepath.Join(r.out, "images.txt"), []byte(digests), 0o644)
}

// labels describe an image to registries and people.
func (p product) labels(version string, date time.Time) map[string]string {
	const key = "org.opencontainers.image."
	return map[string]string{
		key + "title": p.name, key + "description": p.about, key + "version": version, key + "licenses": "Apache-2.0",
		key + "source": "https://github.com/pilotmesh/pilot", key + "created": date.UTC().Format(time.RFC3339),
	}
}

// image makes the image of one architecture, and the list of its contents. What changes least is in the lowest layer.
func (r *release) image(ctx context.Context, p product, arch string) (v1.Image, error) {
	packages, err := debian.Pinned(arch, p.groups...)
	if err != nil {
		return nil, err
	}
	paths, err := r.debian.Fetch(ctx, packages)
	if err != nil {
		return nil, err
	}
	base, err := system(paths, p)
	if err != nil {
		return nil, err
	}
	var layers []image.Layer
	add := func(about string, files tree.Tree) error {
		l, err := image.NewLayer(r.work, about, files, r.date)
		layers = append(layers, l)
		return err
	}
	if err := add("files of Debian "+debian.Suite, base); err != nil {
		return nil, err
	}
	contents := sbom.Contents{Name: p.name, Version: r.version, Arch: "linux-" + arch, Date: r.date, Debian: packages}
	if p.envoy {
		contents.Envoy, contents.EnvoyVersion = r.envoy(arch), r.envoyVersion
		files := tree.Tree{}
		files.Program("usr/local/bin/envoy", r.envoy(arch))
		if err := add("Envoy "+r.envoyVersion, files); err != nil {
			return nil, err
		}
	}
	program, at := r.program(p.program, platform{"linux", arch}), "usr/local/bin/"+p.program
	contents.Programs = []string{program}
	files := tree.Tree{}
	files.Program(at, program)
	files["usr/share/doc/"+p.name+"/LICENSE"] = tree.File{Mode: 0o644, Source: filepath.Join(r.root, "LICENSE")}
	if err := add(p.program+" "+r.version, files); err != nil {
		return nil, err
	}
	list, err := sbom.Write(contents)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.out, p.name+"_"+r.version+"_image_"+arch+".spdx.json"), list, 0o644)
	}
	if err != nil {
		return nil, err
	}
	return image.New(arch, image.Settings{Entrypoint: []string{"/" + at}, User: "1337:1337", Labels: p.labels(r.version, r.date), Date: r.date}, layers...)
}

// system returns the files that an image has besides programs of ours.
func system(packages []string, p product) (tree.Tree, error) {
	files, err := debian.Unpack(packages)
	if err != nil {
		return nil, err
	}
	// The user has an entry so that ENVOY_USER, and programs that look up their own user, find a name.
	files.Text("etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nistio-proxy:x:1337:1337::/var/lib/istio:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n")
	files.Text("etc/group", "root:x:0:\nistio-proxy:x:1337:\nnogroup:x:65534:\n")
	files.Text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n")
	files.Folder("root", 0o700, 0)
	files.Folder("run", 0o755, 0) // the lock of iptables
	files.Folder("tmp", 0o777|fs.ModeSticky, 0)
	files.Folder("var/tmp", 0o777|fs.ModeSticky, 0)
	for _, folder := range p.folders {
		files.Folder(folder, 0o755, proxyID)
	}
	return files, nil
}

// pushAll pushes the images.
func (r *release) pushAll(ctx context.Context, images indexes) error {
	for _, p := range products {
		at, err := image.Push(ctx, r.push, p.name, r.version, images[p.name])
		if err != nil {
			return err
		}
		r.report("pushed %s", at)
	}
	return nil
}
