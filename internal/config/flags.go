package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// flags are command line values that Validate or Remarks process further.
type flags struct {
	set *pflag.FlagSet
}

// Flags adds the command line flags to fs.
func (s *Settings) Flags(fs *pflag.FlagSet) {
	s.flags.set = fs
	fs.StringVar(&s.ConfigDir, "configDir", s.ConfigDir, "directory of configuration documents (*.yaml, *.yml and *.json, including subdirectories) instead of the Kubernetes cluster; changes are watched")
	fs.StringVar(&s.CredentialsDir, "credentialsDir", s.CredentialsDir, "folder of Secrets for credentialName: NAMESPACE/NAME/{tls.crt,tls.key,ca.crt,ca.crl}, such as shop/payments-client/tls.crt; changes are watched. Sidecars get the Secrets of their own namespace, over TLS only")
	fs.StringSliceVar(&s.Registries, "registries", []string{kubernetes}, "sources of services in addition to ServiceEntries: Kubernetes, Consul, ZooKeeper, Nacos, Eureka, MCP, Memory. With --configDir, Kubernetes is read only if --kubeconfig is set; the others are described by --registriesConfig, Consul also by --consulserverURL, and MCP by configSources of the mesh configuration")
	fs.StringVar(&s.RegistriesConfig, "registriesConfig", s.RegistriesConfig, "file with the registries outside Kubernetes and the migrations between them (doc/registries.md); changes are watched")
	fs.StringVar(&s.ConsulURL, "consulserverURL", s.ConsulURL, "URL of a Consul server or agent, such as http://127.0.0.1:8500: one registry of the name consul")
	fs.DurationVar(&s.ConsulInterval, "consulserverInterval", s.ConsulInterval, "longest wait of one query to the server of --consulserverURL")
	fs.StringVar(&s.Kubeconfig, "kubeconfig", s.Kubeconfig, "kubeconfig file for access to the Kubernetes cluster; not needed in a pod of the cluster")
	fs.Float32Var(&s.KubernetesQPS, "kubernetesApiQPS", s.KubernetesQPS, "maximum number of requests to the Kubernetes API server per second")
	fs.IntVar(&s.KubernetesBurst, "kubernetesApiBurst", s.KubernetesBurst, "maximum number of requests to the Kubernetes API server at the same time")
	fs.StringVar(&s.MeshConfig, "meshConfig", s.MeshConfig, "file with the mesh settings (MeshConfig); changes are watched; the default file need not exist")
	fs.StringVar(&s.NetworksConfig, "networksConfig", s.NetworksConfig, "file with the mesh networks (MeshNetworks), which is watched")
	fs.StringVar(&s.Domain, "domain", s.Domain, "DNS suffix of the cluster's services")
	fs.StringVarP(&s.Namespace, "namespace", "n", s.Namespace, "namespace of the control plane")
	fs.StringVar(&s.RemoteNamespace, "clusterRegistriesNamespace", s.RemoteNamespace, "namespace of the Secrets that describe remote clusters, with the label istio/multiCluster=true; empty for the namespace of the control plane")
	fs.StringVar(&s.PluginNamespace, "cniNamespace", s.PluginNamespace, "namespace of the agents of the CNI plugin, whose readiness removes the taint cni.istio.io/not-ready from nodes (PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS=true); by default the namespace of the control plane")
	fs.StringVar(&s.ClusterID, "clusterID", s.ClusterID, "name of the control plane's cluster, also used for proxies that do not report their cluster")

	fs.StringVar(&s.HTTPAddr, "httpAddr", s.HTTPAddr, "address of /ready, /metrics, /version and /debug; empty for none")
	fs.StringVar(&s.MonitoringAddr, "monitoringAddr", s.MonitoringAddr, "second address of the same pages, for Prometheus; empty for none")
	fs.StringVar(&s.GRPCAddr, "grpcAddr", s.GRPCAddr, "address of xDS without TLS; empty for none")
	fs.StringVar(&s.HTTPSAddr, "httpsAddr", s.HTTPSAddr, "address of the webhooks of a cluster, which inject proxies and check objects, over TLS; empty for none. They need --secureGRPCAddr, whose certificate they show")
	fs.StringVar(&s.SecureGRPCAddr, "secureGRPCAddr", s.SecureGRPCAddr, "address of xDS and of the certificate authority over TLS; callers must show a certificate of the mesh or a token; empty for none")
	fs.StringVar(&s.CA.StateDir, "stateDir", s.CA.StateDir, "folder for data that must last outside Kubernetes: the keys of the certificate authority and of tokens, the last good versions of access policies, and the last good roots of SPIFFE bundles")
	fs.StringVar(&s.CA.CertFile, "tlsCertFile", "", "file with the certificate that the control plane shows; the default is one that its certificate authority signs")
	fs.StringVar(&s.CA.KeyFile, "tlsKeyFile", "", "file with the key of --tlsCertFile")
	fs.StringVar(&s.CA.RootsFile, "caCertFile", "", "file with further roots of certificates that callers may show")
	fs.BoolVar(&s.Profile, "profile", s.Profile, "serve /debug/pprof")
	fs.BoolVar(&s.DebugRemote, "debugRemote", s.DebugRemote, "serve /debug to all hosts, without authentication; by default only to this host")

	fs.DurationVar(&s.KeepaliveInterval, "keepaliveInterval", s.KeepaliveInterval, "time without activity after which a connection is pinged")
	fs.DurationVar(&s.KeepaliveTimeout, "keepaliveTimeout", s.KeepaliveTimeout, "time after which a connection that does not answer a ping is closed")
	fs.Var((*age)(&s.KeepaliveMaxServerConnectionAge), "keepaliveMaxServerConnectionAge", "age of a connection at which its proxy is asked to reconnect")
	fs.DurationVar(&s.ShutdownDuration, "shutdownDuration", s.ShutdownDuration, "maximum duration of stopping")

	fs.DurationVar(&s.MinCommitInterval, "minCommitInterval", s.MinCommitInterval, "minimum time between two commits; 0 for none. Changes that arrive during a commit are combined in any case")
	fs.IntVar(&s.Workers, "workers", s.Workers, "goroutines that compute configuration; 0 for one per processor")
	fs.IntVar(&s.MaxRecvMsgSize, "maxRecvMsgSize", s.MaxRecvMsgSize, "maximum size of a message from a proxy, in bytes after decompression")
	fs.DurationVar(&s.WriteTimeout, "writeTimeout", s.WriteTimeout, "time after which a connection is closed if its proxy does not read")

	fs.StringVar(&s.LogLevels, "log_output_level", "info", "lowest level that is logged: debug, info, warn, error or none, for all parts, or as PART:LEVEL,... for some; /debug/logging lists the parts, and changes levels at run time (pilotctl log)")
	fs.BoolVar(&s.LogJSON, "log_as_json", s.LogJSON, "log JSON, one object per line")
	for _, f := range inert() {
		f.add(fs)
	}
}

// inertFlag is a flag of Istio's control plane that has no effect, or no effect yet.
type inertFlag struct {
	name, otherwise string
	help            string
	// off lists values that disable the feature, so they need no warning.
	off []string
	// hidden flags are accepted because manifests for Istio contain them. They are not in the help.
	hidden bool
}

func inert() []inertFlag {
	list := []inertFlag{
		{name: "ctrlz_port", otherwise: "9876", help: "port of Istio's introspection page, which does not exist here; levels of the log are set at /debug/logging of --httpAddr (pilotctl log)", off: []string{"0"}},
		{name: "ctrlz_address", otherwise: "localhost", help: "address of Istio's introspection page, which does not exist here", off: []string{""}},
	}
	for _, name := range []string{
		"clusterAliases", "tls-cipher-suites", "tls-min-version", "log_caller", "log_rotate",
		"log_rotate_max_age", "log_rotate_max_backups", "log_rotate_max_size", "log_stacktrace_level", "log_target",
		"vklog", "plugins", "appNamespace", "resync", "trust-domain",
		"mcpMaxMsgSize", "mcpInitialWindowSize", "mcpInitialConnWindowSize", "disable-install-crds", "discoveryCache",
	} {
		list = append(list, inertFlag{name: name, help: "accepted for compatibility", hidden: true})
	}
	return list
}

func (f inertFlag) add(fs *pflag.FlagSet) {
	fs.String(f.name, f.otherwise, "not used yet: "+f.help)
	if f.hidden {
		added := fs.Lookup(f.name)
		added.Hidden = true
		added.NoOptDefVal = "true" // some of them are switches
	}
}

// Remarks are the warnings at start: flags that have no effect, and unknown flags. args is the command line after
// the command's name.
func (s *Settings) Remarks(args []string) []string {
	var remarks []string
	if s.flags.set.Changed("namespace") && s.Namespace != defaultNamespace && !s.Kubernetes() {
		remarks = append(remarks, fmt.Sprintf("--namespace=%s has no effect: the namespace of the control plane is not used yet; set the namespace of mesh-wide rules with rootNamespace in the mesh settings", s.Namespace))
	}
	for _, f := range inert() {
		given := s.flags.set.Lookup(f.name)
		if given.Changed && given.Value.String() != f.otherwise && !slices.Contains(f.off, given.Value.String()) {
			remarks = append(remarks, fmt.Sprintf("--%s=%s has no effect: it is not supported yet", f.name, given.Value))
		}
	}
	if s.flags.set.Changed("registries") {
		for _, r := range s.Registries {
			switch {
			case r == kubernetes && !s.Kubernetes():
				remarks = append(remarks, "--registries=Kubernetes has no effect: with --configDir, Kubernetes is read only if --kubeconfig is set")
			case r != "" && r != kubernetes && !slices.Contains(s.kinds(), r):
				remarks = append(remarks, fmt.Sprintf("--registries=%s has no effect: it is not supported yet", r))
			}
		}
	}
	if s.GRPCAddr == "" && s.SecureGRPCAddr == "" {
		remarks = append(remarks, "--grpcAddr and --secureGRPCAddr are empty: no proxy can connect")
	}
	for _, name := range unknown(s.flags.set, args) {
		remark := fmt.Sprintf("unknown flag %s has no effect", name)
		if near := closest(s.flags.set, name); near != "" {
			remark += "; did you mean --" + near + "?"
		}
		remarks = append(remarks, remark)
	}
	return remarks
}

// kinds are the kinds of registries outside Kubernetes.
func (*Settings) kinds() []string {
	return []string{consul, "ZooKeeper", "Nacos", "Eureka", mcpServers, "Memory"}
}

// unknown finds the flags of a command line that fs does not have.
func unknown(fs *pflag.FlagSet, args []string) []string {
	var names []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			break
		}
		name, _, assigned := strings.Cut(arg, "=")
		var f *pflag.Flag
		switch {
		case strings.HasPrefix(name, "--"):
			f = fs.Lookup(name[2:])
		case len(name) > 1 && name[0] == '-':
			f = fs.ShorthandLookup(name[1:2])
			assigned = assigned || len(name) > 2
		default:
			continue
		}
		switch {
		case f == nil:
			names = append(names, name)
		case !assigned && f.NoOptDefVal == "":
			i++ // its value
		}
	}
	return names
}

// closest is the flag that the user may have meant by an unknown name, "" if no flag is similar.
func closest(fs *pflag.FlagSet, name string) string {
	fold := func(s string) string {
		return strings.ToLower(strings.Map(func(r rune) rune {
			if r == '-' || r == '_' {
				return -1
			}
			return r
		}, s))
	}
	meant := fold(name)
	near := ""
	fs.VisitAll(func(f *pflag.Flag) {
		if fold(f.Name) == meant && !f.Hidden {
			near = f.Name
		}
	})
	return near
}
