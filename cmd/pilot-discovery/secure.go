package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/controller/about"
	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/controller/impersonation"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/admission"
	"github.com/pilotmesh/pilot/internal/security/ca"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/source"
)

const (
	// identitySource is the name of the source of the problems of the certificate authority.
	identitySource = "certificate authority"
	// rootSecret is the Secret of a self-signed authority.
	rootSecret = "istio-ca-secret"
	// maxHeaders bounds what a caller may send before it is known, in bytes. Tokens have about 1.5 KB.
	maxHeaders = 64 << 10
	// handshake is how long a caller may take until its connection is established.
	handshake = 10 * time.Second
	// fetchLimit bounds how long the keys of an issuer are waited for.
	fetchLimit = 10 * time.Second
)

// pluggedSecret is the Secret into which an authority may be plugged.
const pluggedSecret = "cacerts"

// trust has the trust domain of the mesh with its aliases, and its further roots, as the last commit left them.
type trust struct {
	domains atomic.Pointer[[]string]
	roots   atomic.Pointer[ca.Trusted]
	// message is the mesh configuration that roots were made of, and bundles are the roots of the SPIFFE bundles that it names. They belong to
	// the goroutine that commits.
	message *meshconfig.MeshConfig
	bundles []string
	log     *slog.Logger
}

// setRoots takes the roots of the mesh configuration. bundle returns the roots of the SPIFFE bundle at an address.
func (t *trust) setRoots(m *meshconfig.MeshConfig, bundle func(from string) string) {
	var bundles []string
	for _, data := range m.GetCaCertificates() {
		bundles = append(bundles, bundle(data.GetSpiffeBundleUrl()))
	}
	if m == t.message && slices.Equal(bundles, t.bundles) && t.roots.Load() != nil {
		return
	}
	t.message, t.bundles = m, bundles
	roots, errs := ca.NewTrusted(m.GetCaCertificates(), bundle)
	for _, err := range errs {
		t.log.Warn("roots are left out", "error", err)
	}
	t.roots.Store(roots)
}

func (t *trust) set(domains []string) {
	if is := t.domains.Load(); is == nil || !slices.Equal(*is, domains) {
		domains = slices.Clone(domains)
		t.domains.Store(&domains)
	}
}

func (t *trust) all() []string { return *t.domains.Load() }

func (t *trust) first() string { return t.all()[0] }

// secure is the part of the control plane that serves callers over TLS.
type secure struct {
	settings *config.Settings
	trust    *trust
	keeper   *ca.Keeper
	// signer signs the certificates of workloads.
	signer  ca.Signer
	door    *admission.Door
	metrics *admin.IdentityMetrics
	// sink receives the problems of the authority, and xds ends the connections of certificates that it revokes.
	sink source.Sink
	xds  *server.Server
	// impersonation is nil if no caller may have the certificate of another workload.
	impersonation ca.Impersonation
	// about answers what metrics call the workload of a caller.
	about func(context.Context, identity.Caller) string
	hooks *webhooks
}

// newSecure creates the certificate authority, and the door for callers.
func newSecure(s *config.Settings, access *rest.Config, metrics *admin.Metrics, log *slog.Logger) (*secure, error) {
	x := &secure{settings: s, trust: &trust{log: log}, door: &admission.Door{Log: log, Pace: &admission.Pace{}}}
	x.trust.set([]string{"cluster.local"})
	x.trust.setRoots(nil, nil)
	store, err := rootStore(s, access)
	if err != nil {
		return nil, err
	}
	var plug ca.Plug
	if writes(s) {
		if plug, err = cluster.NewPluggedSecret(access, s.Namespace, pluggedSecret); err != nil {
			return nil, err
		}
	}
	x.keeper = ca.NewKeeper(ca.Settings{
		Folder: ca.Folder(s.CA.PluggedIn), Plug: plug, Store: store, More: x.trust.roots.Load, Outside: s.CA.External,
		Roots: ca.Roots{
			Organization: "cluster.local", RSABits: s.CA.RootRSABits, Valid: s.CA.RootTTL, Grace: s.CA.RootGrace, Spread: s.CA.MaxTTL,
		},
		Limits: ca.Limits{Default: s.CA.DefaultTTL, Max: s.CA.MaxTTL}, Check: s.CA.RootCheck,
		Names: servingNames(s), Serving: ca.ServingFiles{Cert: s.CA.CertFile, Key: s.CA.KeyFile, Roots: s.CA.RootsFile},
		Compliance: s.CA.Compliance, Report: x.reporter(), Log: log, Now: time.Now,
		Changed: func() { x.xds.EndRevoked() },
	})
	x.metrics = metrics.Identity(func() *ca.Authority {
		select {
		case <-x.keeper.Ready():
			return x.keeper.Authority()
		default:
			return nil
		}
	})
	x.door.Refused, x.door.Revoked = x.metrics.Refused, x.keeper.Revoked
	if x.signer, err = x.signs(access); err != nil {
		return nil, err
	}
	if x.door.Callers, err = x.callers(access); err != nil {
		return nil, err
	}
	x.hooks, err = newWebhooks(s, access, x, metrics, log)
	return x, err
}

// signs returns the signer of the certificates of workloads: the authority of the control plane, or signers of the cluster.
func (x *secure) signs(access *rest.Config) (ca.Signer, error) {
	c := x.settings.CA
	if !c.External {
		return x.keeper, nil
	}
	if access == nil {
		return nil, errors.New("EXTERNAL_CA: signers of Kubernetes need a cluster; set --kubeconfig, or remove EXTERNAL_CA")
	}
	requests, err := cluster.NewSigningRequests(access)
	if err != nil {
		return nil, err
	}
	return &ca.Registrar{
		Requests: requests, Signer: c.Signer, Domain: c.SignerDomain, Now: time.Now,
		Roots: func(signer string) []*x509.Certificate { return x.trust.roots.Load().Of(signer) },
	}, nil
}

// rootStore returns where a self-signed authority is kept: in a cluster only if the control plane writes to that.
func rootStore(s *config.Settings, access *rest.Config) (ca.Store, error) {
	if !writes(s) {
		return ca.File{Dir: statefile.Dir(s.CA.StateDir)}, nil
	}
	return cluster.NewSecretStore(access, s.Namespace, rootSecret)
}

// callers returns the authenticator of callers.
func (x *secure) callers(access *rest.Config) (identity.Authenticator, error) {
	c := x.settings.CA
	list := identity.Any{identity.Certificates{TrustDomains: x.trust.all, Now: time.Now}}
	if c.Rule.Issuer != "" {
		list = append(list, c.Rule.Accept(c.Audiences, &http.Client{Timeout: fetchLimit}, x.trust.first, time.Now))
	}
	if !writes(x.settings) {
		// pilotctl issues tokens only where a control plane has made the key.
		if _, err := identity.LoadLocalKey(statefile.Dir(c.StateDir)); err != nil {
			return nil, err
		}
		list = append(list, identity.LocalTokens(statefile.Dir(c.StateDir), c.Audiences, x.trust.first, time.Now))
	}
	if access == nil {
		return list, nil
	}
	reviewer, err := cluster.NewReviewer(access)
	if err != nil {
		return nil, err
	}
	return append(list, identity.NewReviewed(reviewer, c.Audiences, x.trust.first, time.Now)), nil
}

// servingNames are the names and addresses by which callers know the control plane.
func servingNames(s *config.Settings) []string {
	var names []string
	for _, name := range []string{"istiod", "istiod-" + s.Revision, "istiod-remote", "istio-pilot"} {
		names = append(names, name+"."+s.Namespace+".svc", name+"."+s.Namespace+".svc."+s.Domain, name+"."+s.Namespace)
	}
	names = append(names, "localhost", "127.0.0.1", "::1")
	if host, err := os.Hostname(); err == nil && host != "" {
		names = append(names, host)
	}
	return append(names, s.CA.Hosts...)
}

// reporter returns a function that reports faults of the certificate authority as problems of the mesh.
func (x *secure) reporter() func([]string) {
	var was []api.Problem
	return func(problems []string) {
		var is []api.Problem
		for _, p := range problems {
			is = append(is, api.Problem{Severity: api.Error, Code: "authority", Reason: p})
		}
		x.sink.Apply(source.Batch{Source: identitySource, Synced: true, Problems: source.ProblemEvents(was, is)})
		was = is
	}
}

// add adds the actors.
func (x *secure) add(g *run.Group, running *loop.Loop, xds *server.Server) {
	s := x.settings
	x.sink, x.xds = running, xds
	if s.Kubernetes() && len(s.CA.NodeAccounts) > 0 {
		x.impersonation = impersonation.Rule{Mesh: running, Accounts: s.CA.NodeAccounts, Cluster: s.ClusterID}
	}
	x.about = about.Workloads{Mesh: running, Cluster: s.ClusterID}.About
	g.Add(run.Actor{Name: "certificate authority", Run: x.keeper.Run, Ready: x.keeper.Ready()})
	g.Add(run.ListenGRPC("xDS and certificates (--secureGRPCAddr)", s.SecureGRPCAddr, x.server(xds, x.keeper.TLS()), xds.Drain, s.ShutdownDuration/2))
	x.hooks.add(g, running)
}

// server returns the server of xDS and of certificates over TLS.
func (x *secure) server(xds *server.Server, settings *tls.Config) *grpc.Server {
	s := x.settings
	g := grpc.NewServer(append(xds.SecureGRPC(settings), grpc.MaxHeaderListSize(maxHeaders), grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: s.KeepaliveInterval, Timeout: s.KeepaliveTimeout,
			MaxConnectionAge: s.KeepaliveMaxServerConnectionAge, MaxConnectionAgeGrace: s.KeepaliveTimeout, MaxConnectionIdle: server.IdleTime,
		}))...)
	xds.Register(g)
	if !s.CA.Off {
		service := &ca.Service{Door: x.door, Signer: x.signer, Limits: x.keeper.Limits(), Impersonation: x.impersonation, About: x.about, Observe: x.metrics.Outcome}
		service.Register(g)
	}
	return g
}

// refuse reports that a proxy claims another identity than its own.
func (x *secure) refuse(ctx context.Context, reason error) {
	x.door.Refuse(ctx, "a proxy is refused, because it claims another identity", reason)
}

// roots returns a function that writes the roots of the mesh into the namespaces of the cluster.
func (x *secure) roots(access *rest.Config, running *loop.Loop, log *slog.Logger) (func(context.Context), error) {
	w, err := cluster.NewRoots(access)
	if err != nil {
		return nil, err
	}
	w.Log = log
	w.PEM, w.Revoked = func() []byte { return x.keeper.Authority().Roots() }, func() []byte { return x.keeper.Authority().CRL() }
	w.Namespaces = func(ctx context.Context) ([]string, error) {
		return loop.Look(ctx, running, func(v *loop.View) (names []string) {
			for k := range v.Tables.Kube.Namespaces.All() {
				if k.Kind == kube.KindNamespace && k.Cluster == x.settings.ClusterID {
					names = append(names, k.Name)
				}
			}
			return names
		})
	}
	return w.Run, nil
}
