// Package debian gets files of Debian for images: pinned packages, fetched by apt-get and verified, and unpacked without being installed.
//
// list.txt pins the version and the checksum of each package, so that every machine makes the same image, whichever mirror it uses. Scripts of
// packages do not run; Unpack does their work for these packages. The package starts no goroutines.
package debian

import (
	"bufio"
	_ "embed" // the pinned packages
	"fmt"
	"regexp"
	"strings"
)

// Suite is the release of Debian.
const Suite = "bookworm"

// Package is one pinned package.
type Package struct {
	Arch, Name, Version, SHA256 string
}

//go:embed list.txt
var list string

// Groups of packages. An image has some of them.
const (
	// Base has roots of certificate authorities, names of protocols and services, and the name of the system, which scanners read.
	Base = "base"
	// Proxy has the C library, which Envoy is linked with, and iptables and nft with their libraries, which the capture of traffic runs.
	Proxy = "proxy"
)

// groups are the names of the packages.
var groups = map[string][]string{
	Base: {"base-files", "ca-certificates", "netbase"},
	Proxy: {
		"libc6", "libgcc-s1",
		"iptables", "libip4tc2", "libip6tc2", "libmnl0", "libnetfilter-conntrack3", "libnfnetlink0", "libnftnl11", "libxtables12",
		"nftables", "libbsd0", "libedit2", "libgmp10", "libjansson4", "libmd0", "libnftables1", "libtinfo6",
	},
}

// line is one line of the list. Its parts go into a command line and into paths.
var line = regexp.MustCompile(`^(amd64|arm64) ([a-z0-9][a-z0-9.+-]+) ([0-9][A-Za-z0-9.+~:-]*) ([0-9a-f]{64})$`)

// parse reads a list.
func parse(text string) ([]Package, error) {
	var all []Package
	scan := bufio.NewScanner(strings.NewReader(text))
	for scan.Scan() {
		l := scan.Text()
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			return nil, fmt.Errorf("the list of Debian's packages has the line %q: it must be ARCHITECTURE NAME VERSION SHA256", l)
		}
		all = append(all, Package{m[1], m[2], m[3], m[4]})
	}
	return all, scan.Err()
}

// Pinned returns the packages of groups for an architecture.
func Pinned(arch string, of ...string) ([]Package, error) {
	all, err := parse(list)
	if err != nil {
		return nil, err
	}
	byName := map[string]Package{}
	for _, p := range all {
		if p.Arch == arch {
			byName[p.Name] = p
		}
	}
	var found []Package
	for _, group := range of {
		for _, name := range groups[group] {
			p, ok := byName[name]
			if !ok {
				return nil, fmt.Errorf("no package %s of Debian is pinned for %s: images are made for the architectures of packaging/debian/list.txt", name, arch)
			}
			found = append(found, p)
		}
	}
	return found, nil
}
