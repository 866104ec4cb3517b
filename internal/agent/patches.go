package agent

import (
	"context"
	"log/slog"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/patched"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/run"
)

// patchesWithin is how long the start of Envoy waits for what EnvoyFilters add to the bootstrap.
const patchesWithin = 10 * time.Second

// patching applies what EnvoyFilters add to the bootstrap of the proxy.
type patching struct {
	proxy    *proxy
	settings *config.Settings
	config   boot.Config
	// changed is called when Envoy runs and there is another patch; nil if only another start of the agent applies it.
	changed func()
	log     *slog.Logger
}

// followPatches adds the follower of patches to the group. It returns nil unless the settings ask for patches.
func followPatches(group *run.Group, t *patching, dialer *upstream.Dialer, kept patched.Kept) *patched.Follower {
	if !t.settings.PatchedBootstrap {
		return nil
	}
	f := patched.New(calls(dialer), t.config.Node, t.settings.Role, kept, t.apply, t.log)
	group.Add(run.Actor{Name: "patches of the bootstrap", Run: f.Run})
	return f
}

// apply merges a patch into the bootstrap, if Envoy accepts the result. nil means that there is none.
func (t *patching) apply(ctx context.Context, patch *bootstrapv3.Bootstrap) error {
	if t.proxy.hasPatch(patch) {
		return nil
	}
	next, err := t.proxy.revisionWith(t.settings, t.config, patch)
	if err != nil {
		return err
	}
	if patch != nil {
		if err := t.proxy.validate(ctx, next); err != nil {
			return err
		}
	}
	switch started := t.proxy.setPatch(patch, next); {
	case !started:
		t.log.Info("EnvoyFilters add to the bootstrap")
	case t.changed != nil:
		t.changed()
	default:
		t.log.Warn("what EnvoyFilters add to the bootstrap has changed; it takes effect when the agent is started again")
	}
	return nil
}

// await waits until the patches are known, or for as long as Envoy may wait. It returns false, at once, if the agent is asked to end before: then
// Envoy is not to be started.
func (t *patching) await(ctx context.Context, f *patched.Follower) (start bool) {
	if f != nil {
		t.wait(ctx, f)
	}
	return t.proxy.begin()
}

func (t *patching) wait(ctx context.Context, f *patched.Follower) {
	limit := time.NewTimer(patchesWithin)
	defer limit.Stop()
	select {
	case <-f.Known():
	case <-ctx.Done():
	case <-t.proxy.abandoned:
	case <-limit.C:
		t.log.Warn("the control plane does not say what EnvoyFilters add to the bootstrap; Envoy is started with the stored answer, if there is one", "after", patchesWithin)
		if err := f.Restore(ctx); err != nil && ctx.Err() == nil {
			t.log.Error("what EnvoyFilters added to the bootstrap last is refused; Envoy does without", "error", err)
		}
	}
}

// hasPatch reports whether a patch is in force.
func (p *proxy) hasPatch(patch *bootstrapv3.Bootstrap) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return proto.Equal(patch, p.patch) // two that are nil are equal, and nil equals no other
}

// setPatch puts a patch in force. Before Envoy was started, the revision that has it becomes the first one.
func (p *proxy) setPatch(patch *bootstrapv3.Bootstrap, first revision) (started bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patch = patch
	if isClosed(p.begun) {
		return true
	}
	p.revisions[firstRevision] = first
	return false
}

// begin notes that the first revision is final. It is called once, and returns false if the start was abandoned before.
func (p *proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.abandoned) {
		return false
	}
	close(p.begun)
	return true
}

// abandon makes begin return false, and ends the wait before it. It returns false if begin has returned true before.
func (p *proxy) abandon() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.begun) {
		return false
	}
	if !isClosed(p.abandoned) {
		close(p.abandoned)
	}
	return true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// first returns the first revision.
func (p *proxy) first() revision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revisions[firstRevision]
}

// revision returns the revision that follows from the settings, and from the patch in force.
func (p *proxy) revision(s *config.Settings, c boot.Config) (revision, error) {
	p.mu.Lock()
	patch := p.patch
	p.mu.Unlock()
	return p.revisionWith(s, c, patch)
}
