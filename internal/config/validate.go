package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/config/logging"
)

// Limits of settings.
const (
	minRecvMsgSize = 64 << 10
	maxRecvMsgSize = 1 << 30
	maxWorkers     = 1 << 10
)

// Validate validates the settings and completes them. The error names each invalid flag or environment variable and its remedy.
func (s *Settings) Validate() error {
	errs := slices.Clone(s.environment)
	wrong := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	if reason := s.checkConfigDir(); reason != "" {
		wrong("configDir", "%s", reason)
	}
	if reason := checkFile(&s.MeshConfig, defaultMeshConfig); reason != "" {
		wrong("meshConfig", "%s", reason)
	}
	if reason := checkFile(&s.NetworksConfig, defaultNetworks); reason != "" {
		wrong("networksConfig", "%s", reason)
	}
	if reason := checkFile(&s.RegistriesConfig, ""); reason != "" {
		wrong("registriesConfig", "%s", reason)
	}
	s.checkConsul(wrong)
	if s.KubernetesQPS <= 0 {
		wrong("kubernetesApiQPS", "%v is not greater than 0", s.KubernetesQPS)
	}
	if s.KubernetesBurst < 1 {
		wrong("kubernetesApiBurst", "%d is not at least 1", s.KubernetesBurst)
	}
	if strings.Trim(s.Domain, ".") != s.Domain || s.Domain == "" || strings.ContainsAny(s.Domain, " /:*") {
		wrong("domain", "%q is not a DNS suffix; write it without leading and trailing dots, such as cluster.local", s.Domain)
	}
	var err error
	if s.LeaderElection, err = strconv.ParseBool(s.leaderElection); err != nil {
		errs = append(errs, fmt.Errorf("ENABLE_LEADER_ELECTION: %q is neither true nor false", s.leaderElection))
	}
	if s.RemoteClusterTimeout, err = time.ParseDuration(s.remoteTimeout); err != nil || s.RemoteClusterTimeout <= 0 {
		errs = append(errs, fmt.Errorf("PILOT_REMOTE_CLUSTER_TIMEOUT: %q is not a duration above zero; write one such as 30s", s.remoteTimeout))
	}
	if s.Namespace == "" {
		wrong("namespace", "it is empty; set the namespace of the control plane, such as %s", defaultNamespace)
	}
	s.checkAddresses(wrong)
	s.checkDurations(wrong)
	errs = append(errs, s.CA.check()...)
	if s.Workers < 0 || s.Workers > maxWorkers {
		wrong("workers", "%d is not between 0 (one per processor) and %d", s.Workers, maxWorkers)
	}
	if s.MaxRecvMsgSize < minRecvMsgSize || s.MaxRecvMsgSize > maxRecvMsgSize {
		wrong("maxRecvMsgSize", "%d is not between %d and %d bytes", s.MaxRecvMsgSize, minRecvMsgSize, maxRecvMsgSize)
	}
	if err := logging.Check(s.LogLevels); err != nil {
		wrong("log_output_level", "%v", err)
	}
	return errors.Join(errs...)
}

// checkConfigDir checks that the directory exists at start. Without it the control plane would start with an empty configuration
// and remove everything from the proxies. If the directory disappears later, its objects are kept.
func (s *Settings) checkConfigDir() string {
	if s.ConfigDir == "" {
		return ""
	}
	info, err := os.Stat(s.ConfigDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s does not exist; create it or set another directory", s.ConfigDir)
	case err != nil:
		return fmt.Sprintf("%v; make it readable for this user", err)
	case !info.IsDir():
		return fmt.Sprintf("%s is not a directory; set the directory that contains the file", s.ConfigDir)
	}
	return ""
}

// checkFile checks that a file of settings exists. The default is dropped if it does not.
func checkFile(path *string, otherwise string) string {
	if *path == "" {
		return ""
	}
	_, err := os.Stat(*path)
	switch {
	case err == nil:
		return ""
	case *path == otherwise:
		*path = ""
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s does not exist; create it, or omit the flag to use the defaults", *path)
	}
	return fmt.Sprintf("%v; make it readable for this user", err)
}

// checkConsul checks the server of Consul on the command line.
func (s *Settings) checkConsul(wrong func(flag, format string, args ...any)) {
	if s.ConsulURL != "" {
		u, err := url.Parse(s.ConsulURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
			wrong("consulserverURL", "it is not the URL of a server; write http://HOST:PORT or https://HOST:PORT")
		}
	}
	if s.ConsulURL == "" && s.RegistriesConfig == "" && slices.Contains(s.Registries, consul) {
		wrong("registries", "Consul needs the address of a server; set --consulserverURL, or an entry of type consul in --registriesConfig")
	}
}

func (s *Settings) checkAddresses(wrong func(flag, format string, args ...any)) {
	used := map[string]string{}
	for _, a := range []struct{ flag, addr string }{
		{"httpAddr", s.HTTPAddr}, {"monitoringAddr", s.MonitoringAddr}, {"grpcAddr", s.GRPCAddr}, {"secureGRPCAddr", s.SecureGRPCAddr}, {"httpsAddr", s.HTTPSAddr},
	} {
		if a.addr == "" {
			continue
		}
		_, port, err := net.SplitHostPort(a.addr)
		n, convErr := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil || convErr != nil:
			wrong(a.flag, "%q is not an address; write host:port or :port, or nothing to disable it", a.addr)
		case n != 0 && used[a.addr] != "":
			wrong(a.flag, "%s is also the value of --%s; set different ports, or disable one of them", a.addr, used[a.addr])
		default:
			used[a.addr] = a.flag
		}
	}
}

func (s *Settings) checkDurations(wrong func(flag, format string, args ...any)) {
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
		most  time.Duration
	}{
		{"keepaliveInterval", s.KeepaliveInterval, time.Second, forever},
		{"keepaliveTimeout", s.KeepaliveTimeout, time.Second, forever},
		{"keepaliveMaxServerConnectionAge", s.KeepaliveMaxServerConnectionAge, time.Second, forever},
		{"shutdownDuration", s.ShutdownDuration, 0, forever},
		{"consulserverInterval", s.ConsulInterval, time.Second, forever},
		{"writeTimeout", s.WriteTimeout, time.Millisecond, forever},
		{"minCommitInterval", s.MinCommitInterval, 0, time.Minute},
	} {
		if d.value < d.least {
			wrong(d.flag, "%v is too short; at least %v", d.value, d.least)
		}
		if d.value > d.most {
			wrong(d.flag, "%v is too long; at most %v", d.value, d.most)
		}
	}
}
