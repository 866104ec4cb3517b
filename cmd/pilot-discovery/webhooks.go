package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/inject"
	"github.com/pilotmesh/pilot/internal/inject/webhook"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/filewatch"
	"github.com/pilotmesh/pilot/internal/state"
)

const (
	// valuesFile has the Helm values that injection reads: the ConfigMap istio-sidecar-injector, mounted. It need not exist.
	valuesFile = "./var/lib/istio/inject/values"
	// valuesCheck is how often the file is read although no change was reported.
	valuesCheck = time.Minute
)

// webhooks is the part of the control plane that answers admission requests.
type webhooks struct {
	settings *config.Settings
	secure   *secure
	observe  func(webhook.Event)
	log      *slog.Logger
	reader   *cluster.Machines
	writer   *cluster.Webhooks
	synced   <-chan struct{}

	// mu guards what follows: the loop brings the mesh configuration and the ProxyConfigs, another goroutine the values.
	mu           sync.Mutex
	mesh         *meshconfig.MeshConfig
	proxies      omap.Map[state.ProxyConfigVersion, omap.Unit]
	proxyConfigs []inject.ProxyConfig
	values       *inject.Values // nil before a usable file was read
	built        bool           // with the present configuration
	injector     *inject.Injector
}

// newWebhooks returns the webhooks; they serve nothing if settings or the cluster are missing.
func newWebhooks(s *config.Settings, access *rest.Config, secure *secure, metrics *admin.Metrics, log *slog.Logger) (*webhooks, error) {
	w := &webhooks{settings: s, secure: secure, observe: metrics.Webhooks().Observe, log: log}
	if !w.serves() {
		return w, nil
	}
	if _, err := inject.NativeSidecars(s.Injection.Native, nil); err != nil {
		return nil, run.Usage(err)
	}
	var err error
	if w.reader, err = cluster.NewMachines(access); err != nil {
		return nil, err
	}
	if w.writer, err = cluster.NewWebhooks(access); err != nil {
		return nil, err
	}
	w.writer.Namespace, w.writer.Revision, w.writer.Pod, w.writer.Log = s.Namespace, w.labelled(), s.PodName, log
	w.writer.Test = cluster.SelfTest{Name: webhook.SelfTest, Answer: webhook.SelfTestAnswer(w.labelled())}
	w.writer.Mutating, w.writer.Validating = w.named(s.Injection.Webhooks), s.Injection.Checks
	w.writer.Roots = func() []byte { return secure.keeper.Authority().Roots() }
	return w, nil
}

// serves reports whether there are webhooks: they show the certificate of the secure server.
func (w *webhooks) serves() bool {
	s := w.settings
	return writes(s) && !s.Injection.Off && s.HTTPSAddr != "" && s.SecureGRPCAddr != ""
}

// revision is the revision as injection knows it: the default one has no name.
func (w *webhooks) revision() string {
	if w.settings.Revision == "default" {
		return ""
	}
	return w.settings.Revision
}

// labelled is the revision as the label istio.io/rev has it.
func (w *webhooks) labelled() string { return cmp.Or(w.revision(), "default") }

// named returns the name that the configuration of the injecting webhook has for this revision and namespace.
func (w *webhooks) named(name string) string {
	if r := w.revision(); r != "" {
		name += "-" + r
	}
	if n := w.settings.Namespace; n != "istio-system" {
		name += "-" + n
	}
	return name
}

// setConfig takes the mesh configuration and the ProxyConfigs of the last commit.
func (w *webhooks) setConfig(t *state.Tables) {
	if !w.serves() {
		return
	}
	m, _ := t.MeshConfig.Peek(struct{}{})
	proxies := t.Extensions.ProxyConfigVersions.Peek(struct{}{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if m == w.mesh && proxies.Equal(w.proxies) && w.built {
		return
	}
	w.mesh, w.proxies, w.proxyConfigs = m, proxies, nil
	for v := range proxies.All() {
		if row, ok := t.Extensions.ProxyConfigs.Peek(v.Key); ok {
			w.proxyConfigs = append(w.proxyConfigs, inject.ProxyConfig{Namespace: v.Key.Namespace, Name: v.Key.Name, Created: time.UnixMicro(v.Created), Spec: row.Spec})
		}
	}
	w.build()
}

// build makes the injector. If the settings cannot be used, the former one serves.
func (w *webhooks) build() {
	if w.values == nil {
		return
	}
	w.built = true
	native, err := inject.NativeSidecars(w.settings.Injection.Native, nil)
	var i *inject.Injector
	if err == nil {
		i, err = inject.New(inject.Config{
			Mesh: w.mesh, ProxyConfigs: w.proxyConfigs, Values: *w.values, Revision: w.revision(), NativeSidecars: native,
			Compliance: string(w.settings.CA.Compliance), OpenShift: w.settings.Injection.OpenShift, Tag: run.ReadBuild().ImageTag(),
		})
	}
	if err != nil {
		w.log.Error("the settings of injection cannot be used; the former ones stay in force", "error", err)
		return
	}
	w.injector = i
}

// present returns the injector; nil until the configuration of the cluster was read.
func (w *webhooks) present() *inject.Injector {
	select {
	case <-w.synced:
	default:
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.injector
}

// add adds the actors.
func (w *webhooks) add(g *run.Group, running *loop.Loop) {
	if !w.serves() {
		return
	}
	w.synced = running.Synced()
	server := &webhook.Server{Injector: w.present, Namespace: w.namespace, Control: w.settings.Namespace, Revision: w.labelled(), Observe: w.observe, Log: w.log}
	g.Add(run.Actor{Name: "values of injection", Run: w.follow})
	g.Add(run.Actor{Name: "webhooks (--httpsAddr)", Run: func(ctx context.Context) error {
		var open net.ListenConfig
		l, err := open.Listen(ctx, "tcp", w.settings.HTTPSAddr)
		if err != nil {
			return fmt.Errorf("the webhooks cannot listen: %w; set another --httpsAddr, or --httpsAddr= for none", err)
		}
		return run.HTTP("webhooks", tls.NewListener(l, w.tls()), server.Handler(), drain, w.log).Run(ctx)
	}})
	// Every replica keeps the roots, because the elected replica may belong to another revision, which has other webhooks. All replicas have
	// the same roots, and write only if the object does not have them.
	g.Add(run.Actor{Name: "roots of the webhooks", Run: func(ctx context.Context) error {
		select {
		case <-w.secure.keeper.Ready():
			w.writer.Run(ctx)
		case <-ctx.Done():
		}
		return nil
	}})
}

// tls returns the settings of the secure server for clients that show no certificate.
func (w *webhooks) tls() *tls.Config {
	base := w.secure.keeper.TLS()
	protocols := []string{"h2", "http/1.1"}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := base.GetConfigForClient(hello)
		if err != nil {
			return nil, err
		}
		c = c.Clone()
		c.NextProtos, c.ClientAuth = protocols, tls.NoClientCert
		return c, nil
	}}
}

// follow reads the values, and reads them again when their file changes.
func (w *webhooks) follow(ctx context.Context) error {
	files := &filewatch.Watcher{Log: w.log}
	defer files.Close()
	again := time.NewTicker(valuesCheck)
	defer again.Stop()
	const none = "?" // no file has this content
	was := none
	for {
		files.Follow([]string{valuesFile})
		text, err := filewatch.Read(valuesFile)
		if was == none && errors.Is(err, fs.ErrNotExist) {
			text, err = nil, nil // the defaults hold
		}
		if err != nil {
			w.log.Error("the values of injection cannot be read; the former ones stay in force", "file", valuesFile, "error", err)
		} else if string(text) != was {
			was = string(text)
			w.setValues(text)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-files.Changed():
			files.Settle(ctx)
		case <-files.Failed(): //nolint:errcheck // the files are read again after any error
		case <-again.C:
		}
	}
}

// setValues takes the content of the file.
func (w *webhooks) setValues(text []byte) {
	v, err := inject.ParseValues(text)
	if err != nil {
		w.log.Error("the values of injection cannot be used; the former ones stay in force", "file", valuesFile, "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.values = &v
	w.build()
}

// namespace returns a namespace with its annotations. Only OpenShift needs these.
func (w *webhooks) namespace(ctx context.Context, name string) *inject.Namespace {
	if !w.settings.Injection.OpenShift {
		return nil
	}
	n, err := w.reader.Namespace(ctx, name)
	if err != nil {
		w.log.Warn("a namespace cannot be read; the usual user of proxies is taken", "namespace", name, "error", err)
		return nil
	}
	return &inject.Namespace{Name: name, Labels: n.Labels, Annotations: n.Annotations}
}
