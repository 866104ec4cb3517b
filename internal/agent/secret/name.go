package secret

import (
	"fmt"
	"strings"
)

// The names that are no file's, and the prefixes of those that are. They are Istio's.
const (
	workload  = "default" // the workload's own certificate and key
	meshRoots = "ROOTCA"  // those by which others of the mesh are known

	rootsPrefix = "file-root:"
	pairPrefix  = "file-cert:"
	systemRoots = "system"
	pairCut     = "~"
)

// sources says which files a secret is made of. Each alternative stands for the whole; the first that exists counts.
type sources struct {
	pair         bool       // certificate and key, in this order; otherwise roots
	alternatives [][]string // each has two files for a pair and one for roots
}

// parse reads the name of a secret. The error says what about it is wrong, and what to do.
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

// mounted are the places at which Istio finds a workload's certificates that somebody else has made.
func mounted() [][3]string {
	const credentials = "./var/run/secrets/workload-spiffe-credentials/"
	return [][3]string{
		{"./etc/certs/cert-chain.pem", "./etc/certs/key.pem", "./etc/certs/root-cert.pem"},
		{credentials + "cert-chain.pem", credentials + "key.pem", credentials + "root-cert.pem"},
		{credentials + "certificates.pem", credentials + "private_key.pem", credentials + "ca_certificates.pem"},
	}
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

// systemBundles are where distributions keep their roots.
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
