package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/agent"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/run"
)

// proxyHelp is the help of the proxy command.
const proxyHelp = `proxy runs one Envoy until it receives a signal to stop: beside a workload (sidecar), or as a gateway (router).

It accepts Istio's flags and environment variables: POD_NAME, POD_NAMESPACE, INSTANCE_IP, SERVICE_ACCOUNT, ISTIO_META_*,
ISTIO_METAJSON_*, PROXY_CONFIG and others. It logs a remark for each setting that has no effect, such as a flag that it does not have.

On a machine of a cloud (CLOUD_PLATFORM is aws, gcp or azure; what the firmware says outside Kubernetes; none to ask no cloud) the agent asks the
cloud for the region and zone of the proxy, unless the label istio-locality names them.

Envoy's bootstrap follows from ProxyConfig and the annotations of the pod: where spans, statistics and access logs are sent (tracing,
statsdUdpAddress, envoyMetricsService, envoyAccessLogService), which statistics are kept (proxyStatsMatcher), runtime values, ports. Metrics
are compressed (statsCompression); ENVOY_SECURE_METRICS_PORT and ENVOY_SECURE_MERGED_METRICS_PORT serve them to clients with a certificate
of the mesh, and ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL=true lets probes come through load balancers. In a container with a memory
limit Envoy gives free memory back when its heap comes near it, and refuses requests rather than being killed. ISTIO_BOOTSTRAP_OVERRIDE names a YAML file
that is merged over the bootstrap. ISTIO_BOOTSTRAP (or --templateFile, customConfigFile, proxyBootstrapTemplatePath) names a template
that replaces it, in the language of Go's text/template without methods; the result is YAML or JSON. {{toJSON .bootstrap}} is the bootstrap
that is used without it, as a tree; the names of Istio's templates exist, too (nodeID, cluster, meta_json_str, config, localhost, wildcard, ...).
BOOTSTRAP_XDS_AGENT=true merges what EnvoyFilters add to the bootstrap (applyTo: BOOTSTRAP): the agent asks the control plane before it starts Envoy,
for 10 s at most.

GRPC_XDS_BOOTSTRAP names a file that is written for gRPC libraries that are their own data plane; they call the control plane through
the agent (Pilot's control plane refuses them so far). With DISABLE_ENVOY=true there is no Envoy beside them.

It calls the control plane over TLS if the port is 15012, or if controlPlaneAuthPolicy is MUTUAL_TLS. The roots that vouch
for the control plane are in XDS_ROOT_CA (./var/run/secrets/istio/root-cert.pem). The agent shows a token (--tokenFile), and
gets a certificate for the workload from the control plane's certificate authority (or that at CA_ADDR), which it renews
(SECRET_TTL, SECRET_GRACE_PERIOD_RATIO) and shows from then on. The key stays in memory, unless OUTPUT_CERTS names a
folder: root-cert.pem there has the roots of the authority, and trust-bundle.pem all roots that Envoy trusts. Then the agent has its certificate again after a reboot, when its token may have expired; PROV_CERT names the folder of a
certificate that is shown before there is another one, usually the same folder. Keys are of ECDSA (ECC_CURVE), or RSA with WORKLOAD_RSA_KEY_SIZE. CA_CRL names a file with the certificates that the
authority has revoked (./var/run/secrets/istio/crl/ca-crl.pem). COMPLIANCE_POLICY (fips-140-2 or pqc) restricts the TLS of
the agent; the same variable of the control plane restricts the TLS of Envoy.

It serves certificates and roots to Envoy: the workload's own, from the authority or mounted in ./etc/certs or
./var/run/secrets/workload-spiffe-credentials; files that a DestinationRule refers to; and the roots of the system. It watches
the files, and /debug/secretz of the status server shows the state of each secret. The socket of the SDS server is
./var/run/secrets/workload-spiffe-uds/socket, or in --configPath if that is not the default. To use another SDS server
instead, set WORKLOAD_IDENTITY_SOCKET_FILE to the name of its socket in the former directory.

With ISTIO_META_DNS_CAPTURE=true it answers the DNS queries of the workload, over UDP and TCP at DNS_PROXY_ADDR (localhost:15053),
to which the capture of traffic redirects them. Names of the mesh come from the control plane; the last ones stay in force while
that is gone. Other names are asked of the servers in DNS_RESOLV_CONF (/etc/resolv.conf): one after the other, or all at once with
DNS_FORWARD_PARALLEL=true, for at most DNS_FORWARD_TIMEOUT (5s). /debug/ndsz of the status server lists the names.

It answers the probes and hooks of the kubelet that the injector has redirected to it and described in ISTIO_KUBE_APP_PROBERS
(/app-health/... and /app-lifecycle/... of the status server), by HTTP, HTTPS, TCP and gRPC. Over HTTPS it offers HTTP/2, unless
ISTIO_ENABLE_HTTP2_PROBING=false; ENABLE_PROBE_KEEPALIVE_CONNECTIONS=true keeps connections. It calls the workload's address, or
localhost with REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION=true.

On a machine of a WorkloadGroup it probes the application as readinessProbe of ProxyConfig says (httpGet, tcpSocket, exec or grpc), and
Envoy, and reports changes of the result to the control plane (pilot_agent_workload_healthy).

/stats/prometheus of the status server has the metrics of Envoy, of the agent, and of the application as ISTIO_PROMETHEUS_ANNOTATIONS
describes it ({"port":"8080","path":"/metrics"}, or several targets). A target that cannot be scraped hides nothing of the others; its
pilot_agent_scrape_target_up is 0. With METRICS_LOCALHOST_ACCESS_ONLY=true, this page and Envoy's listener for scrapes are for loopback only.

It fetches the modules of Wasm filters that the control plane sends as extensions (ECDS), from registries of images (oci://) and web servers,
and gives Envoy files in the folder wasm of --configPath, where they stay for restarts. A module that no filter has needed for WASM_MODULE_EXPIRY
(24h) goes; that is looked at every WASM_PURGE_INTERVAL (1h). A server may be silent for WASM_HTTP_REQUEST_TIMEOUT (15s), and is asked
WASM_HTTP_REQUEST_MAX_RETRIES (5) more times. WASM_INSECURE_REGISTRIES (localhost:5000,registry.local) names servers that need no TLS
and no valid certificate, and that may be on this host; * means all. Loopback and link-local addresses and addresses of metadata
services are not connected to otherwise, nor are addresses in BLOCKED_CIDRS_IN_WASM_FETCH (10.1.0.0/16,...).

Envoy trusts the roots in caCertificatesPem, and the roots of the authority or in the file. With PROXY_CONFIG_XDS_AGENT=true it also trusts what the control
plane adds, if that serves trust bundles to agents as Istio's does.

With --stsPort and STS_TOKEN_ENDPOINT it exchanges tokens for programs of the workload (RFC 8693): POST /token on loopback is passed on
to that URL, whose certificate is verified with the roots in STS_ROOT_CA (or the roots of the system).

At port 15004 on loopback (PROXY_XDS_DEBUG_VIA_AGENT_PORT; none with PROXY_XDS_DEBUG_VIA_AGENT=false) it serves the debug pages of the
control plane: GET /debug/syncz, or pilotctl with --address=http://127.0.0.1:15004. It asks as the workload, which may read of proxies in its own
namespace, or of all if it runs in the namespace of the control plane.

With --hotRestart it reads its settings again when the mesh settings, the annotation proxy.istio.io/config, the file that
ISTIO_BOOTSTRAP_OVERRIDE names, the template, or a file that the bootstrap names has changed, on SIGHUP, and at POST /restart of the status server, which
restarts in any case. If another bootstrap follows, another Envoy takes the listeners over, and the old one has parentShutdownDuration to
complete its requests. That needs memory for two Envoys and /dev/shm. Without --hotRestart, changes take effect when the agent is started
again. A bootstrap with which Envoy fails three times in a row gives way to the last good one; /healthz/ready and
pilot_agent_bootstrap_refused report it.

SIGTERM and SIGINT drain the proxy: clients are asked to use other endpoints, and running requests have
terminationDrainDuration to complete (or, with EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true, as long as connections are open). Then
Envoy stops. A second signal stops it immediately.

Exit codes: 0 Envoy stopped as requested; 1 it crashed too often, was stopped immediately, or could not be started; 2 the
command line, environment or ProxyConfig is invalid.`

// proxyExamples are the examples of the proxy command.
const proxyExamples = `  # a sidecar without capture of traffic, for a control plane on this host
  ISTIO_META_INTERCEPTION_MODE=NONE POD_NAME=web-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.1 \
    pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15010

  # the same over TLS, with a token (pilotctl token create) and the roots from the state folder of the control plane
  XDS_ROOT_CA=$HOME/.local/state/pilot/root-cert.pem ISTIO_META_INTERCEPTION_MODE=NONE POD_NAME=web-1 POD_NAMESPACE=shop \
    INSTANCE_IP=127.1.0.1 pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15012 --tokenFile=web.token

  # a sidecar that answers DNS queries; ask it with: dig @127.0.0.1 -p 15053 web.shop.svc.cluster.local
  ISTIO_META_DNS_CAPTURE=true ISTIO_META_INTERCEPTION_MODE=NONE POD_NAME=web-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.1 \
    pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15010

  # a sidecar that replaces its Envoy when mesh.yaml changes; ask for a restart with: curl -X POST localhost:15020/restart
  ISTIO_META_INTERCEPTION_MODE=NONE POD_NAME=web-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.1 \
    pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15010 --hotRestart --meshConfig=mesh.yaml

  # a gateway whose bootstrap has one more cluster
  echo '{static_resources: {clusters: [{name: collector}]}}' > extra.yaml
  ISTIO_BOOTSTRAP_OVERRIDE=extra.yaml POD_NAME=edge-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.1 \
    pilot-agent proxy router --discoveryAddress=127.0.0.1:15010

  # no Envoy, but a program with gRPC: start it with GRPC_XDS_BOOTSTRAP=$PWD/grpc.json, too, and dial xds:///
  DISABLE_ENVOY=true GRPC_XDS_BOOTSTRAP=$PWD/grpc.json POD_NAME=web-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.1 \
    pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15010

  # a second sidecar on the same host, with other ports
  ISTIO_META_INTERCEPTION_MODE=NONE POD_NAME=api-1 POD_NAMESPACE=shop INSTANCE_IP=127.1.0.2 \
    pilot-agent proxy sidecar --discoveryAddress=127.0.0.1:15010 --configPath=/tmp/api-1 \
    --proxyAdminPort=16000 --statusPort=16020 --envoyStatusPort=16021 --envoyPrometheusPort=16090`

// proxyName is the name of the proxy command.
const proxyName = "proxy"

func proxy(s *config.Settings) *cobra.Command {
	c := &cobra.Command{
		Use:     proxyName + " [sidecar|router]",
		Short:   "Run a proxy",
		Long:    proxyHelp,
		Example: proxyExamples,
		Args:    cobra.MaximumNArgs(1),
	}
	s.Flags(c.Flags())
	c.RunE = func(cmd *cobra.Command, args []string) error {
		// Signals are handled from here on. Otherwise an early signal would end the agent but not Envoy.
		stop := make(chan os.Signal, 8)
		signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(stop)
		if len(args) > 0 {
			s.Role = args[0]
		}
		err := run.Begin(stop, startLimit, func(begun func()) error { return runProxy(cmd, s, stop, begun) })
		if errors.Is(err, run.ErrStopped) {
			fmt.Fprintln(cmd.ErrOrStderr(), "pilot-agent: received a signal to stop before Envoy was started")
			return nil
		}
		return err
	}
	return c
}

// startLimit is how long everything before the start of Envoy may take. Each step has a shorter limit of its own, if it can have one.
const startLimit = 2 * time.Minute

// runProxy reads the settings and runs the agent. It calls begun when it receives from stop.
func runProxy(cmd *cobra.Command, s *config.Settings, stop <-chan os.Signal, begun func()) error {
	if err := s.Load(); err != nil {
		return run.Usage(err)
	}
	run.PaceCollector(run.Often)
	var reload chan os.Signal
	if s.HotRestart { // otherwise SIGHUP says that the terminal is gone
		reload = make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		defer signal.Stop(reload)
	}
	log := logger(cmd.ErrOrStderr(), s)
	for _, remark := range s.Warnings() {
		log.Warn("settings", "remark", remark)
	}
	return agent.Run(cmd.Context(), s, agent.Host{Stdout: os.Stdout, Stderr: os.Stderr, Stop: stop, Reload: reload, Listening: begun}, log)
}

// logger returns a logger that writes text or JSON lines. It logs which parts do not exist.
func logger(w io.Writer, s *config.Settings) *slog.Logger {
	log := logging.New(w, s.LogJSON, agent.Parts())
	if err := logging.Of(log).Set(s.LogLevels); err != nil {
		log.Warn("settings", "remark", "--log_output_level: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return log
}
