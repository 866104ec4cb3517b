// Package config owns the settings of pilot-discovery: the flags, the few environment variables that are their defaults,
// what is legal, and what to tell somebody who wrote something else.
//
// Settings are a value: read once at start, judged as a whole, handed down by field. Flags have Istio's names and
// defaults. Those that Istio has and this program does not use yet are accepted, say so in their help, and are named in
// a warning when somebody sets them.
//
// The package is pure apart from looking whether named files exist. It starts no goroutines and must not import anything
// that serves or translates.
package config

import (
	"log/slog"
	"math"
	"time"
)

// Forever is a duration without end.
const Forever = time.Duration(math.MaxInt64)

// Settings are what pilot-discovery is told at start.
type Settings struct {
	// ConfigDir is the directory of configuration documents.
	ConfigDir string
	// MeshConfig is the file with the mesh settings. It is optional while it is the default.
	MeshConfig string
	// Domain is the suffix of the names of services in the cluster.
	Domain string
	// Namespace is where the control plane itself lives.
	Namespace string
	// ClusterID names the cluster the control plane is in.
	ClusterID string

	// HTTPAddr and MonitoringAddr serve pages; GRPCAddr serves xDS in plaintext. Empty ones are off.
	HTTPAddr, MonitoringAddr, GRPCAddr string
	// Profile adds /debug/pprof.
	Profile bool
	// DebugRemote opens /debug to other hosts than this one.
	DebugRemote bool

	// KeepaliveInterval and KeepaliveTimeout are those of gRPC's pings.
	KeepaliveInterval, KeepaliveTimeout time.Duration
	// KeepaliveMaxServerConnectionAge is how long a connection lives before the proxy is asked to connect anew.
	KeepaliveMaxServerConnectionAge time.Duration
	// ShutdownDuration bounds the time from a signal to the end.
	ShutdownDuration time.Duration

	// MinCommitInterval is the least time between two commits.
	MinCommitInterval time.Duration
	// Workers is how many goroutines compute; 0 means one per processor.
	Workers int
	// MaxRecvMsgSize bounds what a proxy may send in one message, decoded.
	MaxRecvMsgSize int
	// WriteTimeout is after how long a proxy that does not read loses its connection.
	WriteTimeout time.Duration

	// LogLevel is the least level that is logged.
	LogLevel slog.Level
	// LogJSON logs JSON lines.
	LogJSON bool

	flags flags
}

// The values of flags that say more than "not set".
const (
	defaultMeshConfig = "./etc/istio/config/mesh"
	defaultNetworks   = "./etc/istio/config/meshNetworks"
	defaultNamespace  = "istio-system"
	defaultCluster    = "Kubernetes"
	kubernetes        = "Kubernetes"
)

// New returns the settings before any flag is read. lookup is os.LookupEnv, or what stands for it.
func New(lookup func(name string) (string, bool)) *Settings {
	env := func(name, otherwise string) string {
		if v, ok := lookup(name); ok && v != "" {
			return v
		}
		return otherwise
	}
	return &Settings{
		MeshConfig: defaultMeshConfig, Domain: "cluster.local",
		Namespace: env("POD_NAMESPACE", defaultNamespace), ClusterID: env("CLUSTER_ID", defaultCluster),
		HTTPAddr: ":8080", MonitoringAddr: ":15014", GRPCAddr: ":15010", Profile: true,
		KeepaliveInterval: 30 * time.Second, KeepaliveTimeout: 10 * time.Second, KeepaliveMaxServerConnectionAge: Forever,
		ShutdownDuration: 10 * time.Second,
		MaxRecvMsgSize:   8 << 20, WriteTimeout: 10 * time.Second,
	}
}
