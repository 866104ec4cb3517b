package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// order says what package is made.
type order struct {
	// agent and envoy are programs; an empty envoy leaves it out. files is the folder with the other files.
	agent, envoy, files string
	version, arch       string
	date                time.Time
}

// debCommand makes the Debian package alone.
func debCommand(_ context.Context, args []string) error {
	f := flag.NewFlagSet("packaging deb", flag.ExitOnError)
	o := order{date: time.Now()}
	f.StringVar(&o.agent, "agent", "../bin/pilot-agent", "the program pilot-agent")
	f.StringVar(&o.envoy, "envoy", "", "an Envoy that the package brings along; empty for none")
	f.StringVar(&o.files, "files", "files", "the folder with the unit and the scripts")
	f.StringVar(&o.version, "version", "0.0.0~devel", "version of the package")
	f.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture, as Go names it")
	dir := f.String("o", "../bin", "the folder for the package")
	if err := f.Parse(args); err != nil {
		return err
	}
	path, err := o.write(*dir)
	if err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

// Where the package puts things.
const (
	agentPath = "/usr/bin/pilot-agent"
	envoyPath = "/usr/lib/pilot-agent/envoy"
	unitPath  = "/usr/lib/systemd/system/pilot-agent.service"
)

// info describes the package.
func (o order) info() *nfpm.Info {
	own := func(name string) string { return filepath.Join(o.files, name) }
	file := func(from, to string, mode fs.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}}
	}
	settings := file(own("sidecar.env"), "/var/lib/istio/envoy/sidecar.env", 0o644)
	settings.Type = files.TypeConfigNoReplace
	contents := files.Contents{
		file(o.agent, agentPath, 0o755), file(own("pilot-agent.service"), unitPath, 0o644), settings,
		file(own("tmpfiles.conf"), "/usr/lib/tmpfiles.d/pilot-agent.conf", 0o644),
		file(own("copyright"), "/usr/share/doc/pilot-agent/copyright", 0o644),
	}
	if o.envoy != "" {
		contents = append(contents, file(o.envoy, envoyPath, 0o755))
	}
	return nfpm.WithDefaults(&nfpm.Info{
		Name: "pilot-agent", Arch: o.arch, Platform: "linux", Version: o.version, VersionSchema: "none", Section: "net", Priority: "optional",
		Maintainer: "The authors of Pilot <pilot@example.invalid>", License: "Apache-2.0", MTime: o.date,
		Description: "agent of a service mesh\nIt runs an Envoy beside the workload of a virtual machine, and makes the machine a part of the mesh.",
		Overridables: nfpm.Overridables{
			Depends: []string{"adduser", "iptables | nftables"}, Recommends: []string{"ca-certificates"},
			Provides: []string{"istio-sidecar"}, Conflicts: []string{"istio-sidecar"}, Replaces: []string{"istio-sidecar"},
			Contents: contents,
			Scripts:  nfpm.Scripts{PostInstall: own("postinst"), PreRemove: own("prerm"), PostRemove: own("postrm")},
			Deb:      nfpm.Deb{Compression: "gzip"},
		},
	})
}

// write writes the package into a folder, whole or not at all, and returns its path.
func (o order) write(dir string) (path string, err error) {
	info := o.info()
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return "", err
	}
	path = filepath.Join(dir, deb.Default.ConventionalFileName(info))
	f, err := os.CreateTemp(dir, ".deb-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = errors.Join(deb.Default.Package(info, f), f.Chmod(0o644), f.Close())
	if err != nil {
		return "", fmt.Errorf("writing the package: %w", err)
	}
	return path, os.Rename(f.Name(), path)
}
