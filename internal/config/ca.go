package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/compliance"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// CA are the settings of the certificate authority and of the identities of callers. Istio has them in environment variables.
type CA struct {
	// Off is true if the control plane signs no certificates for workloads (ENABLE_CA_SERVER).
	Off bool
	// StateDir is the folder for persistent state outside Kubernetes.
	StateDir string
	// CertFile, KeyFile and RootsFile are the certificate that the control plane shows, its key, and further roots of its callers.
	CertFile, KeyFile, RootsFile string
	// PluggedIn is the folder where an authority may be mounted (ROOT_CA_DIR).
	PluggedIn string
	// Hosts are further names by which callers know the control plane (ISTIOD_CUSTOM_HOST).
	Hosts []string
	// DefaultTTL and MaxTTL bound how long certificates of workloads are valid.
	DefaultTTL, MaxTTL time.Duration
	// RootTTL is how long a self-signed root is valid, RootGrace which part of that, in percent, is left when its successor is made,
	// RootCheck how often that is checked, and RootRSABits the size of its RSA key; 0 for an ECDSA key.
	RootTTL     time.Duration
	RootGrace   int
	RootCheck   time.Duration
	RootRSABits int
	// Audiences are the accepted audiences of tokens: a token must name one (TOKEN_AUDIENCES).
	Audiences []string
	// Rule is the issuer of OIDC tokens that are accepted (JWT_RULE); its Issuer is empty for none.
	Rule identity.Rule
	// NodeAccounts are the service accounts that may have certificates for the pods of their node (CA_TRUSTED_NODE_ACCOUNTS), as
	// NAMESPACE/ACCOUNT.
	NodeAccounts []string
	// External is true if signers of the cluster sign the certificates of workloads (EXTERNAL_CA). Signer is the default signer
	// (K8S_SIGNER), and SignerDomain the domain of the signers that proxies may choose (CERT_SIGNER_DOMAIN).
	External             bool
	Signer, SignerDomain string
	// Unverified is true if unauthenticated proxies may ask to be registered
	// (ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY).
	Unverified bool
	// Compliance restricts all TLS, including the TLS of proxies (COMPLIANCE_POLICY).
	Compliance compliance.Policy

	errs []error
}

// environment reads the environment variables.
func (c *CA) environment(env func(name, otherwise string) string, lookup func(name string) (string, bool)) {
	duration := func(name, otherwise string, into *time.Duration) {
		d, err := time.ParseDuration(env(name, otherwise))
		if err != nil || d < time.Second {
			c.wrong(name, "%q is not a duration of a second or more, such as %s", env(name, otherwise), otherwise)
		}
		*into = d
	}
	number := func(name, otherwise string, least, most int, into *int) {
		n, err := strconv.Atoi(env(name, otherwise))
		if err != nil || n < least || n > most {
			c.wrong(name, "%q is not a number between %d and %d", env(name, otherwise), least, most)
		}
		*into = n
	}
	boolean := func(name string, otherwise bool) bool {
		v, err := strconv.ParseBool(env(name, strconv.FormatBool(otherwise)))
		if err != nil {
			c.wrong(name, "%q is neither true nor false", env(name, ""))
		}
		return v
	}
	c.Off = !boolean("ENABLE_CA_SERVER", true)
	c.external(env)
	policy, err := compliance.Parse(env("COMPLIANCE_POLICY", ""))
	if err != nil {
		c.wrong("COMPLIANCE_POLICY", "%v", err)
	}
	c.Compliance = policy
	c.Unverified = !boolean("ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY", true)
	c.StateDir = statefile.Default(lookup)
	c.PluggedIn = env("ROOT_CA_DIR", "./etc/cacerts")
	c.Hosts = list(env("ISTIOD_CUSTOM_HOST", ""))
	duration("DEFAULT_WORKLOAD_CERT_TTL", "24h", &c.DefaultTTL)
	duration("MAX_WORKLOAD_CERT_TTL", "2160h", &c.MaxTTL)
	duration("CITADEL_SELF_SIGNED_CA_CERT_TTL", "87600h", &c.RootTTL)
	duration("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "1h", &c.RootCheck)
	number("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", "20", 1, 99, &c.RootGrace)
	if env("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", "") != "" {
		number("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", "2048", 2048, 8192, &c.RootRSABits)
	}
	c.Audiences = list(env("TOKEN_AUDIENCES", identity.Audience))
	c.NodeAccounts = list(env("CA_TRUSTED_NODE_ACCOUNTS", ""))
	for _, account := range c.NodeAccounts {
		if _, _, err := identity.ParseAccount(account); err != nil {
			c.wrong("CA_TRUSTED_NODE_ACCOUNTS", "%v", err)
		}
	}
	if text := env("JWT_RULE", ""); text != "" {
		rule, err := identity.ParseRule(text)
		if err != nil {
			c.wrong("JWT_RULE", "%v", err)
		}
		c.Rule = rule
	}
}

// external reads the settings of external signers for the certificates of workloads.
func (c *CA) external(env func(name, otherwise string) string) {
	switch value := env("EXTERNAL_CA", ""); value {
	case "":
	case "ISTIOD_RA_KUBERNETES_API":
		c.External = true
	default:
		c.wrong("EXTERNAL_CA", "%q is not supported; use ISTIOD_RA_KUBERNETES_API, or none for the authority of the control plane", value)
	}
	c.Signer, c.SignerDomain = env("K8S_SIGNER", ""), env("CERT_SIGNER_DOMAIN", "")
	if c.External && c.Signer == "" && c.SignerDomain == "" {
		c.wrong("EXTERNAL_CA", "name the signer in K8S_SIGNER, or the domain of the signers that proxies may wish in CERT_SIGNER_DOMAIN")
	}
}

func (c *CA) wrong(name, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
}

// check returns an error for each invalid setting.
func (c *CA) check() []error {
	errs := c.errs
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, fmt.Errorf("--tlsCertFile and --tlsKeyFile: set both or none"))
	}
	if c.DefaultTTL > c.MaxTTL {
		errs = append(errs, fmt.Errorf("DEFAULT_WORKLOAD_CERT_TTL: %v is longer than MAX_WORKLOAD_CERT_TTL, %v", c.DefaultTTL, c.MaxTTL))
	}
	return errs
}

// list splits a list at commas.
func list(text string) (out []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
