// Package sbom lists what a program or an image consists of, as SPDX 2.3 in JSON.
//
// Everything in a list comes from the files themselves: Go modules from the build information in the programs, packages of Debian from the pinned
// list. The same files give the same text. The package starts no goroutines.
package sbom

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/packaging/debian"
)

// Contents are what a document is about.
type Contents struct {
	// Name, Version and Arch are of the image or the archive.
	Name, Version, Arch string
	Date                time.Time
	// Programs are paths of Go programs; Envoy is the path of an Envoy of a version, or empty.
	Programs            []string
	Envoy, EnvoyVersion string
	// Debian are the packages in an image; an archive has none.
	Debian []debian.Package
}

type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []element      `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type element struct {
	Name      string     `json:"name"`
	ID        string     `json:"SPDXID"`
	Version   string     `json:"versionInfo,omitempty"`
	Download  string     `json:"downloadLocation"`
	Analyzed  bool       `json:"filesAnalyzed"`
	Concluded string     `json:"licenseConcluded"`
	Declared  string     `json:"licenseDeclared"`
	Copyright string     `json:"copyrightText"`
	Purpose   string     `json:"primaryPackagePurpose,omitempty"`
	Checksums []checksum `json:"checksums,omitempty"`
	Refs      []ref      `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	unknown    = "NOASSERTION"
)

// Write returns the document.
func Write(c Contents) ([]byte, error) {
	d := &document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: c.Name + "-" + c.Version + "-" + c.Arch,
		Creation: creation{c.Date.UTC().Format(time.RFC3339), []string{"Tool: pilot-release"}},
	}
	purpose := "ARCHIVE"
	if len(c.Debian) > 0 {
		purpose = "CONTAINER"
	}
	root := d.add(documentID, "DESCRIBES", element{Name: c.Name, Version: c.Version, Declared: "Apache-2.0", Purpose: purpose})
	sums := sha256.New()
	for _, p := range c.Programs {
		sum, err := d.program(root, c.Version, p)
		if err != nil {
			return nil, err
		}
		sums.Write([]byte(sum))
	}
	if c.Envoy != "" {
		sum, err := checksumOf(c.Envoy)
		if err != nil {
			return nil, err
		}
		sums.Write([]byte(sum))
		e := element{Name: "envoy", Version: c.EnvoyVersion, Declared: "Apache-2.0", Purpose: "APPLICATION", Checksums: []checksum{{"SHA256", sum}}}
		e.Refs = purl("pkg:github/envoyproxy/envoy@v" + c.EnvoyVersion)
		d.add(root, "CONTAINS", e)
	}
	for _, p := range c.Debian {
		sums.Write([]byte(p.SHA256))
		e := element{Name: p.Name, Version: p.Version, Purpose: "LIBRARY", Checksums: []checksum{{"SHA256", p.SHA256}}}
		e.Refs = purl("pkg:deb/debian/" + p.Name + "@" + url.QueryEscape(p.Version) + "?arch=" + p.Arch + "&distro=" + debian.Suite)
		d.add(root, "CONTAINS", e)
	}
	d.Namespace = "https://github.com/pilotmesh/pilot/spdx/" + url.PathEscape(d.Name) + "-" + hex.EncodeToString(sums.Sum(nil))[:16]
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // locators have an ampersand
	e.SetIndent("", " ")
	err := e.Encode(d)
	return out.Bytes(), err
}

func purl(locator string) []ref { return []ref{{"PACKAGE-MANAGER", "purl", locator}} }

// program adds a Go program and the modules that it was built from, and returns its checksum.
func (d *document) program(root, version, path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s is no Go program with build information: %w", path, err)
	}
	sum, err := checksumOf(path)
	if err != nil {
		return "", err
	}
	id := d.add(root, "CONTAINS", element{
		Name: filepath.Base(path), Version: version, Declared: "Apache-2.0", Purpose: "APPLICATION", Checksums: []checksum{{"SHA256", sum}},
		Refs: purl("pkg:golang/" + info.Main.Path + "@v" + version + "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/")),
	})
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	d.add(id, "DEPENDS_ON", element{Name: "stdlib", Version: goVersion, Declared: "BSD-3-Clause", Purpose: "LIBRARY", Refs: purl("pkg:golang/stdlib@" + goVersion)})
	for _, m := range info.Deps {
		used := m
		if m.Replace != nil {
			used = m.Replace
		}
		d.add(id, "DEPENDS_ON", element{Name: used.Path, Version: used.Version, Purpose: "LIBRARY", Refs: purl("pkg:golang/" + used.Path + "@" + used.Version)})
	}
	return sum, nil
}

// add adds an element once, with its relation to another one, and returns its identifier.
func (d *document) add(from, relation string, e element) string {
	e.ID = "SPDXRef-" + regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(cmp.Or(e.Purpose, "PACKAGE")+"-"+e.Name+"-"+e.Version, "-")
	e.Download, e.Concluded, e.Declared, e.Copyright = unknown, unknown, cmp.Or(e.Declared, unknown), unknown
	if !slices.ContainsFunc(d.Packages, func(o element) bool { return o.ID == e.ID }) {
		d.Packages = append(d.Packages, e)
	}
	d.Relationships = append(d.Relationships, relationship{from, relation, e.ID})
	return e.ID
}

func checksumOf(path string) (string, error) {
	data, err := os.ReadFile(path)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}
