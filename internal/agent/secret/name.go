package secret

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Istio's names of secrets that do not contain a file name, and prefixes of the names that do.
const (
	workload  = "default" // the workload's own certificate and key
	meshRoots = "ROOTCA"  // the CA certificates of the mesh

	rootsPrefix = "file-root:"
	pairPrefix  = "file-cert:"
	systemRoots = "system"
	pairCut     = "~"
)

// sources lists the files of a secret. Each alternative is complete; the first one that exists is used.
type sources struct {
	pair         bool       // certificate and key, in this order; otherwise CA certificates
	alternatives [][]string // two files each for a pair, one for CA certificates
}

// parse parses the name of a secret. Its error says which part is wrong and how to correct it.
func parse(name string) (sources, error) {
	switch {
	case name == workload:
		return sources{pair: true, alternatives: mountedPairs()}, nil
	case name == meshRoots:
		return sources{alternatives: mountedRoots()}, nil
	case strings.HasPrefix(name, rootsPrefix):
		path := name[len(rootsPrefix):]
		switch path {
		case systemRoots:
			return sources{alternatives: systemBundles()}, nil
		case "":
			return sources{}, fmt.Errorf("%q names no file; write %sPATH, or %s%s for the system's roots", name, rootsPrefix, rootsPrefix, systemRoots)
		}
		return sources{alternatives: [][]string{{path}}}, nil
	case strings.HasPrefix(name, pairPrefix):
		certificate, key, _ := strings.Cut(name[len(pairPrefix):], pairCut)
		if certificate == "" || key == "" || strings.Contains(key, pairCut) {
			return sources{}, fmt.Errorf("%q does not name a certificate and a key; write %sCERTIFICATE%sKEY, with no other %s in it",
				name, pairPrefix, pairCut, pairCut)
		}
		return sources{pair: true, alternatives: [][]string{{certificate, key}}}, nil
	}
	return sources{}, fmt.Errorf("this agent has no secret of the name %q; it has %s, %s, %sPATH and %sCERTIFICATE%sKEY",
		name, workload, meshRoots, rootsPrefix, pairPrefix, pairCut)
}

// mounted returns the paths at which Istio expects mounted workload certificates.
func mounted() [][3]string {
	const credentials = "./var/run/secrets/workload-spiffe-credentials/"
	return [][3]string{
		{"./etc/certs/cert-chain.pem", "./etc/certs/key.pem", "./etc/certs/root-cert.pem"},
		{credentials + "cert-chain.pem", credentials + "key.pem", credentials + "root-cert.pem"},
		{credentials + "certificates.pem", credentials + "private_key.pem", credentials + "ca_certificates.pem"},
	}
}

// MountedFiles returns the paths of the certificate, key and roots that are mounted for the workload; empty if there are none. Files in the
// folders own are not mounted: the agent writes them itself.
func MountedFiles(own ...string) (certificate, key, roots string) {
	for _, m := range mounted() {
		if slices.ContainsFunc(own, func(dir string) bool { return dir != "" && same(dir, filepath.Dir(m[0])) }) {
			continue
		}
		_, noCertificate := os.Stat(m[0])
		_, noKey := os.Stat(m[1])
		if noCertificate == nil && noKey == nil {
			return m[0], m[1], m[2]
		}
	}
	return "", "", ""
}

// same reports whether two paths name one folder.
func same(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

func mountedPairs() [][]string {
	var list [][]string
	for _, m := range mounted() {
		list = append(list, []string{m[0], m[1]})
	}
	return list
}

func mountedRoots() [][]string {
	var list [][]string
	for _, m := range mounted() {
		list = append(list, []string{m[2]})
	}
	return list
}

// systemBundles returns the paths of the CA bundles of Linux distributions.
func systemBundles() [][]string {
	return [][]string{
		{"/etc/ssl/certs/ca-certificates.crt"},                // Debian, Ubuntu, Alpine, Arch
		{"/etc/pki/tls/certs/ca-bundle.crt"},                  // Fedora, Red Hat
		{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"}, // Red Hat since 7
		{"/etc/ssl/ca-bundle.pem"},                            // SUSE
		{"/etc/pki/tls/cacert.pem"},                           // OpenELEC
		{"/etc/ssl/cert.pem"},                                 // Alpine
	}
}
