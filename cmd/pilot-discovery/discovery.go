package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/run"
)

// discoveryHelp is the long help of the command.
const discoveryHelp = `discovery serves configuration to the proxies of a mesh until it receives a signal to stop (SIGINT, SIGTERM).

It reads the configuration and the services of a Kubernetes cluster. With --configDir it reads a directory instead, and the
services of a cluster only if --kubeconfig is set. Secrets of the cluster with the label istio/multiCluster=true describe remote
clusters, whose services it reads, too.

It accepts Istio's flags and environment variables. The help says which of them have no effect yet. Unknown flags are ignored with a warning, so that
a command line for Istio works; so are variables that have no effect (doc/reference/istio-discovery.md lists them). An empty address disables the server at that address.

Of a cluster whose configuration it reads, it also writes statuses, allocates addresses to ServiceEntries that have none, and makes
WorkloadEntries for proxies that name a WorkloadGroup. Environment variables of Istio change that:
  PILOT_ENABLE_IP_AUTOALLOCATE                   false: allocate no addresses
  PILOT_IP_AUTOALLOCATE_IPV4_PREFIX, ..._IPV6_PREFIX
                                                 ranges of allocated addresses (240.240.0.0/16 and 2001:2::/48)
  PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION   false: make no WorkloadEntries
  PILOT_WORKLOAD_ENTRY_GRACE_PERIOD              how long the entry of a proxy stays after it has disconnected (10s)

An access policy (AuthorizationPolicy, PeerAuthentication, RequestAuthentication) whose last edit is refused stays in force as it was,
also after a restart: its last good version is kept in --stateDir, or in ConfigMaps of the cluster. If there is none, it denies all that
its selector and namespace name. Environment variables change that:
  PILOT_REFUSED_POLICIES                         ignore: a refused policy without a good version has no effect (deny)
  PILOT_POLICY_REMOVAL_DELAY                     how long a file must be unchanged before a policy that is no longer in it is withdrawn (5s)

It fetches the keys with which proxies verify tokens (jwksUri of RequestAuthentications, or the addresses that their issuers publish), never from loopback,
link-local and metadata addresses. Environment variables of Istio change that:
  DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES         namespaces, besides its own, whose workloads may read all debug pages through
                                                 their agents, separated by commas; others read of their own namespace's proxies
  ENABLE_XDS_API_GENERATOR_AUTH                  false: other control planes may read configuration (MCP) without showing who they are
  BLOCKED_CIDRS_IN_JWKS_URIS                     more ranges of addresses not to fetch from, separated by commas
  PILOT_JWT_PUB_KEY_REFRESH_INTERVAL             how often keys are fetched again (20m)
  PILOT_JWT_ENABLE_REMOTE_JWKS                   hybrid: proxies fetch keys from services that they see; envoy: only proxies do
  JWKS_RESOLVER_INSECURE_SKIP_VERIFY             true: accept any certificate of a key server

It signs the certificates of workloads for callers that show who they are, with a root of its own or an authority that is plugged in.
Environment variables of Istio change that:
  ENABLE_CA_SERVER                               false: sign no certificates for workloads
  ROOT_CA_DIR                                    folder of an authority to plug in: ca-cert.pem, ca-key.pem, root-cert.pem, cert-chain.pem,
                                                 ca-crl.pem (./etc/cacerts); on Kubernetes also the Secret cacerts
  EXTERNAL_CA                                    ISTIOD_RA_KUBERNETES_API: signers of Kubernetes sign them (manifests/signer.yaml)
  K8S_SIGNER, CERT_SIGNER_DOMAIN                 the signer for all, and the domain of the signers that proxies may wish (CERT_SIGNER)
  DEFAULT_WORKLOAD_CERT_TTL, MAX_WORKLOAD_CERT_TTL
                                                 how long certificates are valid that ask for no time, and at most
  CITADEL_SELF_SIGNED_CA_CERT_TTL                how long a root of its own is valid
  TOKEN_AUDIENCES                                audiences; a token must have one of them (istio-ca)
  JWT_RULE                                       an OIDC issuer whose tokens are accepted, as JSON
  CA_TRUSTED_NODE_ACCOUNTS                       NAMESPACE/ACCOUNT of agents of nodes, which get the certificates of pods of their node
  ISTIOD_CUSTOM_HOST                             more names by which callers know the control plane
  COMPLIANCE_POLICY                              fips-140-2 or pqc: restrict all TLS, also between proxies

For a cluster it serves the webhooks that inject proxies and check objects (--httpsAddr; doc/injection.md). Environment variables of Istio:
  INJECT_ENABLED                                 false: serve no webhooks
  ENABLE_NATIVE_SIDECARS                         true: proxies are init containers that stay running
  INJECTION_WEBHOOK_CONFIG_NAME, VALIDATION_WEBHOOK_CONFIG_NAME
                                                 configurations of webhooks into which the root of the mesh is written
  PLATFORM                                       openshift: users of proxies follow from their namespaces

Environment variables: POD_NAMESPACE, CLUSTER_ID and REVISION are the defaults of --namespace and --clusterID; REVISION is the revision of the control plane.
POD_NAME names this replica in WorkloadEntries, and when replicas elect the one that writes statuses and addresses to the cluster, which ENABLE_LEADER_ELECTION=false turns
off. SHARED_MESH_CONFIG names a ConfigMap whose mesh configuration is merged under the one in the ConfigMap istio.

It becomes ready (/ready) once all configuration has been read and proxies can connect.`

func discovery(args []string) *cobra.Command {
	s := config.New(os.LookupEnv)
	c := &cobra.Command{
		Use:   "discovery",
		Short: "Serve configuration to the proxies of a mesh",
		Long:  discoveryHelp,
		Example: `  # serve a Kubernetes cluster
  pilot-discovery discovery --kubeconfig=$HOME/.kube/config

  # serve a directory; changes of its files are sent to the proxies
  pilot-discovery discovery --configDir=./mesh

  # the same with other addresses, and HTTP pages at one address only
  pilot-discovery discovery --configDir=./mesh --grpcAddr=127.0.0.1:15010 --httpAddr=127.0.0.1:8080 --monitoringAddr=`,
		Args:               cobra.NoArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
	}
	s.Flags(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Validate(); err != nil {
			return run.Usage(err)
		}
		log := logger(cmd.ErrOrStderr(), s)
		for _, remark := range s.Remarks(args[1:]) {
			log.Warn("command line", "remark", remark)
		}
		for _, remark := range config.VariableRemarks(os.Environ()) {
			log.Warn("environment", "remark", remark)
		}
		began := time.Now()
		parts, err := wire(s, log)
		if err != nil {
			return err
		}
		err = parts.Run(cmd.Context())
		log.Info("stopped", "after", time.Since(began).Round(time.Millisecond).String())
		return err
	}
	return c
}
