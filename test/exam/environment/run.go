package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/client"
	"github.com/pilotmesh/pilot/test/exam/observation"
	"github.com/pilotmesh/pilot/test/exam/pki"
)

// Settings of a run.
type Settings struct {
	ID       int    // names and ports of this run, 0 to MaxID
	Jobs     int    // cases side by side, 1 to MaxJobs
	Envoy    string // the binary
	EnvoyLog string // its log level
	Plane    Plane
	Keep     string        // where each case's files go, or none
	Quiet    time.Duration // how long xDS must be unchanged before requests start
	Settle   time.Duration // how long an Envoy with incomplete configuration may see nothing new
	Ready    time.Duration // longest wait for the control plane
}

// What Settings may hold: ports and names of all that run side by side must differ.
const (
	MaxID   = 60
	MaxJobs = 8
)

// Task is a case to run over one of the two variants of xDS.
type Task struct {
	Case *casefile.Case
	SOTW bool // State-of-the-World instead of delta
}

// Variant names the task's variant of xDS.
func (t Task) Variant() string {
	if t.SOTW {
		return "sotw"
	}
	return "delta"
}

// Run runs all tasks and hands each observation to done, one at a time. It returns when everything has stopped. An error
// says that an environment could not be made; what goes wrong in a case is in its observation.
func Run(ctx context.Context, s *Settings, tasks []Task, done func(Task, *observation.Observation, time.Duration)) error {
	keys, err := pki.New()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan Task)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for n := range min(s.Jobs, len(tasks)) {
		workers.Go(func() {
			k := &worker{set: s, id: n, keys: keys}
			defer k.close()
			for t := range queue {
				obs, took, err := k.run(ctx, t)
				if err != nil {
					cancel(err)
				}
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				done(t, obs, took)
				mu.Unlock()
			}
		})
	}
	for _, t := range tasks {
		select {
		case queue <- t:
		case <-ctx.Done():
		}
	}
	close(queue)
	workers.Wait()
	return context.Cause(ctx)
}

// worker runs cases one after the other in an environment of its own.
type worker struct {
	set  *Settings
	id   int
	keys *pki.Material
	env  *environment
	slot int
}

func (k *worker) run(ctx context.Context, t Task) (obs *observation.Observation, took time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if k.env != nil && (k.env.wl.broken || k.env.net.broken) {
		k.close()
	}
	if k.env == nil {
		env, err := newEnvironment(k.set.ID, k.id, k.keys)
		if err != nil {
			return nil, 0, err
		}
		k.env = env
		if err := env.services(ctx); err != nil {
			return nil, 0, err
		}
	}
	k.slot++
	obs, took = k.env.runCase(ctx, k.set, t, k.slot)
	return obs, took, nil
}

func (k *worker) close() {
	if k.env != nil {
		k.env.close()
		k.env = nil
	}
}

// services starts what an environment needs outside the namespaces: secrets and the key set.
func (env *environment) services(ctx context.Context) error {
	sds, stop, err := serveSDS(filepath.Join(env.dir, "sds.sock"), env.keys, filepath.Join(env.dir, "pki"))
	if err != nil {
		return err
	}
	env.sds = sds
	env.stops = append(env.stops, stop)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", env.base+9))
	if err != nil {
		return err
	}
	env.jwks = "http://" + l.Addr().String() + "/jwks"
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, env.keys.JWKS())
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // ends with ErrServerClosed
	env.stops = append(env.stops, func() {
		_ = s.Close()
		serving.Wait()
	})
	return nil
}

// runCase never fails: what went wrong is in the observation.
func (env *environment) runCase(ctx context.Context, set *Settings, t Task, slot int) (obs *observation.Observation, took time.Duration) {
	start := time.Now()
	obs = &observation.Observation{Title: t.Case.Title, Requests: []observation.Request{}}
	dir := filepath.Join(env.dir, fmt.Sprintf("case-%d", slot))
	if err := env.experience(ctx, set, t, dir, slot, obs); err != nil {
		obs.Failed, obs.Details, _ = strings.Cut(err.Error(), "\n")
	}
	if set.Keep != "" {
		keepFiles(dir, filepath.Join(set.Keep, t.Variant(), filepath.Base(filepath.Dir(t.Case.Path)), t.Case.Base()))
	}
	os.RemoveAll(dir)
	return obs, time.Since(start)
}

// keepFiles copies a case's files, but no sockets.
func keepFiles(dir, to string) {
	socks, _ := filepath.Glob(filepath.Join(dir, "*.sock")) // the pattern is good
	for _, s := range socks {
		_ = os.Remove(s) // CopyFS reports failures
	}
	os.RemoveAll(to)
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "exam: keeping files:", err)
	}
}

// experience runs one case in dir and fills obs.
func (env *environment) experience(ctx context.Context, set *Settings, t Task, dir string, slot int, obs *observation.Observation) error {
	c := t.Case
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := env.writeInputs(c, dir); err != nil {
		return err
	}
	if err := env.prepare(c); err != nil {
		return err
	}
	began := time.Now()
	s, url, err := env.startPlane(ctx, set.Plane, dir, slot)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.wait(ctx, url, set.Ready); err != nil {
		return err
	}
	ready := time.Now()
	p, err := startEnvoy(env, c, dir, s.grpc, set, t.SOTW)
	if err != nil {
		return err
	}
	defer p.stop()
	complete, err := p.settled(ctx, set.Quiet, set.Settle)
	if err != nil {
		return err
	}
	settled := time.Now()
	if set.Keep != "" {
		p.dump(ctx)
	}
	for i := range c.Requests {
		met, err := env.request(ctx, c, &c.Requests[i])
		if err != nil {
			return fmt.Errorf("request %q: %w", c.Requests[i].Name, err)
		}
		obs.Requests = append(obs.Requests, met)
	}
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	obs.Phases = fmt.Sprintf("control plane ready %v, envoy settled %v, requests %v",
		round(ready.Sub(began)), round(settled.Sub(ready)), round(time.Since(settled)))
	if err := errors.Join(p.alive(), s.alive()); err != nil {
		return err
	}
	obs.Rejected, obs.Warming, err = p.state(ctx)
	if err == nil && !complete && len(obs.Warming) == 0 {
		obs.Warming = []string{"proxy not ready"}
	}
	return err
}

// prepare sets the environment up for a case's proxy.
func (env *environment) prepare(c *casefile.Case) error {
	sidecar := c.Proxy.Type == "sidecar"
	for _, p := range []*peer{env.wl, env.net} {
		if err := p.call("Forget", 0, nil); err != nil {
			return err
		}
	}
	if err := env.wl.call("Listen", boundPorts(c), nil); err != nil {
		return err
	}
	if err := env.wl.call("Capture", redirection(sidecar && c.Proxy.Metadata["INTERCEPTION_MODE"] != "NONE"), nil); err != nil {
		return err
	}
	trustDomain := "cluster.local"
	if d, ok := c.Mesh["trustDomain"].(string); ok {
		trustDomain = d
	}
	return env.sds.setIdentity(pki.Spiffe(trustDomain, c.Proxy.Namespace, c.Proxy.SA))
}

// request performs one entry and reduces what came of it.
func (env *environment) request(ctx context.Context, c *casefile.Case, r *casefile.Request) (observation.Request, error) {
	if err := pause(ctx, time.Duration(r.Pause)); err != nil {
		return observation.Request{}, err
	}
	j, err := env.job(c, r)
	if err != nil {
		return observation.Request{}, err
	}
	driver := env.wl
	if r.From == "net" {
		driver = env.net
	}
	var outcomes []client.Outcome
	if err := driver.callCtx(ctx, "Perform", j, &outcomes); err != nil {
		return observation.Request{}, err
	}
	if watches(r, "hits") {
		if err := env.collectHits(ctx, outcomes); err != nil {
			return observation.Request{}, err
		}
	}
	return observation.See(r, outcomes), nil
}

func (env *environment) job(c *casefile.Case, r *casefile.Request) (*client.Job, error) {
	j := &client.Job{Request: *r, ID: c.Base() + "/" + r.Name, MeshCA: env.keys.Mesh.Pair().Cert, PublicCA: env.keys.Public.Pair().Cert}
	if r.TLS != nil && r.TLS.As != "" {
		td := r.TLS.TrustDomain
		casefile.Default(&td, "cluster.local")
		ns, sa, _ := strings.Cut(r.TLS.As, "/")
		kp, err := env.issuer(r.TLS).Issue(pki.Spiffe(td, ns, sa))
		if err != nil {
			return nil, err
		}
		j.Cert, j.Key = kp.Cert, kp.Key
	}
	return j, env.addTokens(j, r)
}

// mirrorDelay is how long a mirrored request may come after the one it copies.
const mirrorDelay = 150 * time.Millisecond

// collectHits asks both namespaces which requests arrived where.
func (env *environment) collectHits(ctx context.Context, outcomes []client.Outcome) error {
	ids := make([]string, 0, len(outcomes))
	for _, o := range outcomes {
		ids = append(ids, o.ID)
	}
	// No event shows that no more will come: a copy too many is to be seen as well.
	if err := pause(ctx, mirrorDelay); err != nil {
		return err
	}
	for _, p := range []*peer{env.net, env.wl} {
		var hits map[string][]string
		if err := p.call("Hits", ids, &hits); err != nil {
			return err
		}
		for i := range outcomes {
			outcomes[i].Hits = append(outcomes[i].Hits, hits[outcomes[i].ID]...)
		}
	}
	return nil
}
