package config

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// Files that Istio's injector mounts.
const (
	tokenFile      = "./var/run/secrets/tokens/istio-token"
	firstPartyFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	rootsFile      = "./var/run/secrets/istio/root-cert.pem"
	revokedFile    = "./var/run/secrets/istio/crl/ca-crl.pem"
)

// Certificates are the settings of the workload's certificates, and of the agent's authentication.
type Certificates struct {
	// Authority is the address of the certificate authority; empty if there is none (CA_ADDR).
	Authority string
	// DiscoveryRoots and AuthorityRoots are files with the roots that vouch for both, or SYSTEM (XDS_ROOT_CA, CA_ROOT_CA). ServerName is
	// the name in the certificate of the control plane; empty for the host of the address (ISTIOD_SAN).
	DiscoveryRoots, AuthorityRoots, ServerName string
	// TokenFile is the file with the token, and Provided a folder with a certificate and key that are shown to the authority instead
	// (PROV_CERT).
	TokenFile, Provided string
	// Mounted makes the agent use mounted certificate files, and never the authority (FILE_MOUNTED_CERTS).
	Mounted bool
	// Revoked is a file with lists of revoked certificates, which need not exist (CA_CRL).
	Revoked string
	// Output is a folder to which the agent writes certificates (OUTPUT_CERTS).
	Output string
	// TTL is the requested lifetime of a certificate (SECRET_TTL), and Grace the share of it that is left when the certificate is renewed
	// (SECRET_GRACE_PERIOD_RATIO).
	TTL   time.Duration
	Grace float64
	// RSABits is the size of RSA keys; 0 for ECDSA keys of the curve P-256, or P-384 if Large is true. PKCS8 is their format.
	RSABits      int
	Large, PKCS8 bool
	// TrustBundles asks the control plane for roots that are trusted in addition to the authority's roots (PROXY_CONFIG_XDS_AGENT).
	TrustBundles bool
	// TrustDomain is the trust domain of the mesh, as the proxy knows it (TRUST_DOMAIN).
	TrustDomain string
	// Signer is the signer that the authority shall use; empty for any (ISTIO_META_CERT_SIGNER).
	Signer string
	// Compliance restricts the TLS of connections to the control plane (COMPLIANCE_POLICY).
	Compliance compliance.Policy
}

// loadCertificates reads the settings of certificates.
func (s *Settings) loadCertificates(errs *problems) {
	env := func(name, otherwise string) string {
		return cmp.Or(s.env[name], s.Proxy.GetProxyMetadata()[name], otherwise)
	}
	boolean := func(name string) bool {
		v, err := strconv.ParseBool(env(name, "false"))
		if err != nil {
			errs.add(name, "%q is neither true nor false", env(name, ""))
		}
		return v
	}
	c := &s.Certificates
	var err error
	if c.Compliance, err = compliance.Parse(env("COMPLIANCE_POLICY", "")); err != nil {
		errs.add("COMPLIANCE_POLICY", "%v", err)
	}
	c.Signer = s.text(metaSigner, "")
	c.DiscoveryRoots = env("XDS_ROOT_CA", rootsFile)
	c.AuthorityRoots = env("CA_ROOT_CA", c.DiscoveryRoots)
	c.ServerName = env("ISTIOD_SAN", "")
	c.Revoked = env("CA_CRL", revokedFile)
	c.Provided, c.Output, c.TrustDomain = env("PROV_CERT", ""), env("OUTPUT_CERTS", ""), env("TRUST_DOMAIN", "cluster.local")
	c.Mounted, c.PKCS8, c.TrustBundles = boolean("FILE_MOUNTED_CERTS"), boolean("PKCS8_KEY"), boolean("PROXY_CONFIG_XDS_AGENT")
	switch policy := env("JWT_POLICY", "third-party-jwt"); policy {
	case "third-party-jwt":
		c.TokenFile = tokenFile
	case "first-party-jwt":
		c.TokenFile = firstPartyFile
	default:
		errs.add("JWT_POLICY", "%q is neither third-party-jwt nor first-party-jwt", policy)
	}
	if s.flags.tokenFile != "" {
		c.TokenFile = s.flags.tokenFile
	}
	if c.TTL, err = time.ParseDuration(env("SECRET_TTL", "24h")); err != nil || c.TTL < time.Second {
		errs.add("SECRET_TTL", "%q is not a duration of a second or more, such as 24h", env("SECRET_TTL", ""))
	}
	if c.Grace, err = strconv.ParseFloat(env("SECRET_GRACE_PERIOD_RATIO", "0.5"), 64); err != nil || !(c.Grace >= 0.05 && c.Grace <= 0.95) {
		errs.add("SECRET_GRACE_PERIOD_RATIO", "%q is not a number between 0.05 and 0.95", env("SECRET_GRACE_PERIOD_RATIO", ""))
	}
	s.loadKeys(env, errs)
	if s.TLS {
		c.Authority = s.Proxy.GetDiscoveryAddress()
	}
	if address := env("CA_ADDR", ""); address != "" {
		if host, _, err := net.SplitHostPort(address); err != nil || host == "" {
			errs.add("CA_ADDR", "%q is not host:port", address)
		}
		c.Authority = address
	}
	if provider := env("CA_PROVIDER", "Citadel"); !strings.EqualFold(provider, "Citadel") {
		errs.add("CA_PROVIDER", "%q is not supported; only Citadel, the authority of the control plane, is", provider)
	}
}

// loadKeys reads the type and format of keys.
func (s *Settings) loadKeys(env func(name, otherwise string) string, errs *problems) {
	c := &s.Certificates
	algorithm, bits := env("ECC_SIGNATURE_ALGORITHM", ""), env("WORKLOAD_RSA_KEY_SIZE", "")
	if algorithm != "" && algorithm != "ECDSA" {
		errs.add("ECC_SIGNATURE_ALGORITHM", "%q is not ECDSA", algorithm)
	}
	if curve := env("ECC_CURVE", "P256"); !slices.Contains([]string{"P256", "P384"}, curve) {
		errs.add("ECC_CURVE", "%q is neither P256 nor P384", curve)
	} else {
		c.Large = curve == "P384"
	}
	if bits == "" || algorithm != "" {
		return
	}
	n, err := strconv.Atoi(bits)
	if err != nil || n < 2048 || n > 8192 {
		errs.add("WORKLOAD_RSA_KEY_SIZE", "%q is not a size between 2048 and 8192 bits", bits)
	}
	c.RSABits = n
}
