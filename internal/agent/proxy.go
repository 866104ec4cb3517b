package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/agent/life"
	"github.com/pilotmesh/pilot/internal/agent/node"
)

// baseIDFile is the file in which Envoy writes its base id, beside the bootstrap.
const baseIDFile = "base-id"

// proxy is the Envoy that the supervisor runs.
type proxy struct {
	*envoy.Admin
	dir    string // of the bootstrap
	binary string
	host   Host
	hot    bool // whether there are hot restarts
	// parentShutdown is the time after which a process makes its parent exit.
	parentShutdown time.Duration
	discovery      string
	log            *slog.Logger

	// shape is the shape that the bootstrap of an earlier agent must have to be used.
	shape string

	// begun is closed when the first revision is final.
	begun chan struct{}
	// abandoned is closed when the agent is asked to end before that.
	abandoned chan struct{}

	mu sync.Mutex
	// patch is what EnvoyFilters add to the bootstrap; nil for nothing.
	patch     *bootstrapv3.Bootstrap
	newest    int              // the newest revision
	served    [2]int           // the last two revisions with which Envoy was ready, the newer one first
	revisions map[int]revision // by their numbers
	launched  map[int]launched // the processes that run, by their numbers
}

// revision is the input of an Envoy process: a bootstrap, and the options of the command line that follow from the settings.
type revision struct {
	text    string
	options envoy.Options
	// files are the contents of the files that the bootstrap names.
	files map[string]string
	// env is the environment of the process.
	env []string
}

// launched is a process of Envoy.
type launched struct {
	*envoy.Process
	baseID string // empty if it is not known yet
	epoch  int
	tried  bool // another process was to take over from it; if there is another attempt, that one has failed
}

// newProxy returns a proxy whose first revision follows from the settings. It writes the bootstrap, to learn now whether that is possible.
func newProxy(s *config.Settings, c boot.Config, binary string, h Host, log *slog.Logger) (*proxy, error) {
	p := &proxy{
		Admin: envoy.NewAdmin(loopback(c), boot.HealthPrefix, boot.MetricsPrefix),
		dir:   s.Proxy.GetConfigPath(), binary: binary, host: h, hot: s.HotRestart, parentShutdown: s.ParentShutdown, discovery: s.Proxy.GetDiscoveryAddress(), log: log,
		revisions: map[int]revision{}, launched: map[int]launched{}, begun: make(chan struct{}), abandoned: make(chan struct{}),
	}
	p.Gateway = s.Role != config.Sidecar
	first, err := p.revision(s, c)
	if err != nil {
		return nil, err
	}
	p.newest, p.revisions[firstRevision] = firstRevision, first
	p.shape = shape(c)
	p.loadGood(first)
	p.tidy()
	if err := write(p.path(1), []byte(first.text)); disk.Full(err) {
		log.Warn("the disk is full", "error", err) // Start finds a way
	} else if err != nil {
		return nil, err
	}
	return p, nil
}

// tidy removes files that a killed agent has left behind. The caller holds the lock of the folder.
func (p *proxy) tidy() {
	if id, err := envoy.ReadBaseID(p.baseIDFile()); err == nil {
		p.removeMemory(id)
	}
	names := []string{filepath.Base(p.path(1)), goodFile, lastGoodFile}
	of, err := filepath.Glob(filepath.Join(p.dir, "envoy-rev[0-9]*.json"))
	for _, path := range of {
		names = append(names, filepath.Base(path))
		if path != p.path(1) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	disk.Sweep(p.dir, names...)
	if err != nil {
		p.log.Debug("bootstraps of an earlier agent are left behind", "error", err)
	}
}

// firstRevision is the number of the revision with which the supervisor starts.
const firstRevision = 1

// revisionWith returns the revision that follows from the settings, and from what EnvoyFilters add to the bootstrap; nil if they add nothing.
func (p *proxy) revisionWith(s *config.Settings, c boot.Config, patch *bootstrapv3.Bootstrap) (revision, error) {
	text, err := c.JSON()
	if err == nil && patch != nil {
		text, err = boot.Patched(text, patch)
	}
	if err != nil {
		return revision{}, err
	}
	return revision{
		text: string(text), files: namedFiles(text, []byte(s.Override)), env: node.Variables(c.Node, s.Environ()),
		options: envoy.Options{
			Binary: p.binary, Override: s.Override, IPv6: c.IPv6, Deprecated: c.Tracer.Kind != boot.NoTracer,
			LogLevel: s.EnvoyLogLevel, ComponentLogLevel: s.EnvoyComponentLogLevel, Concurrency: concurrency(s),
			Drain: s.Proxy.GetDrainDuration().AsDuration(), Flush: flush(s), FlushSize: s.Proxy.GetFileFlushMinSizeKb(), Stdout: p.host.Stdout, Stderr: p.host.Stderr,
		},
	}, nil
}

// add makes the newest revision known to Start, and drops revisions that Start cannot get any more: the supervisor goes back no further
// than to the revision that served before the last one.
func (p *proxy) add(n int, r revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.revisions, func(n int, _ revision) bool {
		return n != savedRevision && n != p.served[0] && n != p.served[1] && n != p.newest
	})
	p.revisions[n] = r
	p.newest = n
}

// path returns the file with the bootstrap of a process. With hot restarts each process has its own, whose number counts from 0.
func (p *proxy) path(process int) string {
	if !p.hot {
		return filepath.Join(p.dir, "envoy-rev.json")
	}
	return filepath.Join(p.dir, fmt.Sprintf("envoy-rev%d.json", process-1))
}

func (p *proxy) baseIDFile() string { return filepath.Join(p.dir, baseIDFile) }

// Ready returns nil if Envoy is ready. Its error says what to check.
func (p *proxy) Ready(ctx context.Context) error {
	err := p.Admin.Ready(ctx)
	switch {
	case errors.Is(err, envoy.ErrDisconnected):
		return fmt.Errorf("%w: does one serve at %s (--discoveryAddress), and can this host reach it?", err, p.discovery)
	case errors.Is(err, context.DeadlineExceeded):
		if pid := p.suspended(); pid != 0 {
			return fmt.Errorf("Envoy, process %d, is suspended and answers nothing; continue it (kill -CONT %d)", pid, pid)
		}
	}
	return err
}

// suspended returns the process id of an Envoy that is suspended; 0 if none is.
func (p *proxy) suspended() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.launched {
		if l.Suspended() {
			return l.PID()
		}
	}
	return 0
}

// Start starts an Envoy process.
func (p *proxy) Start(l life.Launch) (life.Process, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.revisions[l.Revision]
	o := r.options
	o.Config = p.path(l.Process)
	if err := write(o.Config, []byte(r.text)); err != nil {
		p.log.Warn("Envoy gets its bootstrap in memory", "error", err)
		o.Text = r.text
	}
	next := launched{}
	if p.hot {
		if l.Parent != 0 {
			parent := p.launched[l.Parent]
			if err := p.prepare(&parent); err != nil {
				return nil, false, err
			}
			p.launched[l.Parent] = parent
			next.epoch, next.baseID = parent.epoch+1, parent.baseID
		}
		o.HotRestart = &envoy.HotRestart{Epoch: next.epoch, BaseID: next.baseID, BaseIDFile: p.baseIDFile(), ParentShutdown: p.parentShutdown}
	}
	var err error
	if next.Process, err = envoy.Start(o, r.env...); err != nil {
		return nil, envoy.Permanent(err), err
	}
	p.launched[l.Process] = next
	p.Expect(next.epoch)
	p.log.Info("started Envoy", "pid", next.PID(), "epoch", next.epoch, "args", o.Args())
	return next.Process, false, nil
}

// prepare prepares a process to be the parent in a hot restart.
func (p *proxy) prepare(parent *launched) error {
	if parent.baseID == "" {
		id, err := envoy.ReadBaseID(p.baseIDFile())
		if err != nil {
			return err
		}
		parent.baseID = id
	}
	if parent.tried {
		return envoy.ForgetStart(parent.baseID)
	}
	parent.tried = true
	return nil
}

// Clean removes the bootstrap of a process that has ended, and the shared memory of its family if it was the last of the family.
func (p *proxy) Clean(process int) {
	if !p.hot {
		return // the file is left to help to find the cause of a crash
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.launched[process]
	delete(p.launched, process)
	if err := os.Remove(p.path(process)); err != nil {
		p.log.Debug("the bootstrap of an Envoy that has ended is left behind", "error", err)
	}
	if was.baseID == "" && was.epoch == 0 && was.Process != nil {
		was.baseID, _ = envoy.ReadBaseID(p.baseIDFile()) // if it did not come that far, there is nothing to remove
	}
	for _, l := range p.launched {
		if l.baseID == was.baseID || l.baseID == "" {
			return
		}
	}
	if was.baseID != "" {
		p.removeMemory(was.baseID)
	}
}

func (p *proxy) removeMemory(baseID string) {
	if err := envoy.RemoveMemory(baseID); err != nil {
		p.log.Debug("shared memory of Envoy is left behind", "error", err)
	}
}

// writable is the remedy if the folder of the bootstrap cannot be used.
const writable = "set --configPath to a directory that this user can write to, with free space"

// write stores a bootstrap, atomically and readable by this user only. A file that has it already is left alone.
func write(path string, text []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = disk.Replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("writing the bootstrap: %w; %s", err, writable)
	}
	return nil
}

// concurrency returns the number of worker threads: the configured one, or the CPU limit of the container as the environment says it and as the
// Go runtime has determined it, whichever is lower.
func concurrency(s *config.Settings) int {
	if n := s.Proxy.GetConcurrency().GetValue(); n > 0 {
		return int(n)
	}
	n := runtime.GOMAXPROCS(0)
	if s.CPULimit > 0 {
		n = min(n, s.CPULimit)
	}
	return n
}

func flush(s *config.Settings) time.Duration {
	if d := s.Proxy.GetFileFlushInterval().AsDuration(); d > 0 {
		return d
	}
	return time.Second
}

// lifecycle adapts the supervisor for the status server.
type lifecycle struct{ *life.Supervisor }

// Leaving reports whether clients are being asked, or will be asked, to use other endpoints.
func (l lifecycle) Leaving() bool {
	switch l.State() {
	case life.Leaving, life.Checking, life.Draining, life.Exiting, life.Stopped:
		return true
	default:
		return false
	}
}

// Serving reports whether Envoy has been ready.
func (l lifecycle) Serving() bool {
	switch l.State() {
	case life.Ready, life.Replacing, life.Retiring, life.Holding:
		return true
	default:
		return false
	}
}

// Replacing reports whether an Envoy serves that cannot be asked, because another one is to take its place.
func (l lifecycle) Replacing() bool { return l.State() == life.Replacing || l.State() == life.Holding }
