package bundles

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

// mostKept is the largest size of the kept roots, in bytes. A ConfigMap, which revisions share, may have 1 MiB.
const mostKept = 256 << 10

// Keeper keeps the last good roots for the next run, as bytes.
type Keeper interface {
	// Update calls change with the kept bytes, and keeps its result instead. There are no bytes if nothing is kept. Update calls change again if
	// another program has changed them in between.
	Update(ctx context.Context, change func(kept []byte) []byte) error
}

// Folder keeps roots in a file of a state folder.
type Folder struct {
	Dir statefile.Dir
	// Of names the mesh configuration, so that several may use one state folder.
	Of string
}

// name returns the name of the file.
func (f Folder) name() string {
	sum := omap.Sum([]byte(f.Of))
	return fmt.Sprintf("bundles-%x.json", sum[:6])
}

// Update implements Keeper. The file has the old content or the new one, even after a crash.
func (f Folder) Update(_ context.Context, change func([]byte) []byte) error {
	release, err := f.Dir.Lock()
	if err != nil {
		return err
	}
	defer release()
	kept, err := f.Dir.ReadUnchanged(f.name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if next := change(kept); !bytes.Equal(next, kept) {
		return f.Dir.Replace(f.name(), next)
	}
	return nil
}

// memory is what a Fetcher knows about its Keeper.
type memory struct {
	read    bool              // the Keeper has returned the roots of earlier runs
	kept    map[string]string // the roots of the last success, by address
	left    int               // the number of bundles without room
	failure string            // of the last attempt
	pauses  *backoff.ExponentialBackOff
	next    time.Time
}

// keep gives the Keeper the last good roots of the wanted bundles. Kept roots of bundles that could not be fetched yet come into force. It
// returns the time until the next attempt. It runs after each commit of the mesh, so it encodes roots only if some have changed.
func (f *Fetcher) keep(ctx context.Context) time.Duration {
	const idle = time.Hour
	m := &f.memory
	if len(f.fetches.Wanted) == 0 && len(m.kept) == 0 {
		return idle
	}
	if m.read && maps.Equal(f.roots(), m.kept) {
		return idle
	}
	if wait := time.Until(m.next); wait > 0 {
		return wait
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var events []source.Event
	roots, left := m.kept, m.left
	err := f.Keeper.Update(limited, func(kept []byte) []byte {
		m.read = true
		events = append(events, f.recall(kept)...)
		roots = f.roots()
		kept, left = encode(roots)
		return kept
	})
	if ctx.Err() != nil {
		return idle
	}
	was, wait := m.failure, idle
	if err == nil {
		m.kept, m.left, m.failure = roots, left, ""
		m.pauses.Reset()
	} else {
		m.failure, wait = err.Error(), m.pauses.NextBackOff()
		m.next = time.Now().Add(wait)
	}
	if m.failure != was && m.failure != "" {
		f.Log.Warn("the last good roots of SPIFFE bundles cannot be kept; it is tried again", "reason", m.failure)
	}
	f.apply(events)
	return wait
}

// recall puts kept roots into force, for bundles whose roots are not known yet.
func (f *Fetcher) recall(kept []byte) (events []source.Event) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(kept, &all); err != nil && len(kept) > 0 {
		f.Log.Warn("the last good roots of SPIFFE bundles cannot be read: they are no JSON")
	}
	for from, e := range f.fetches.Wanted {
		if all[from] == nil || e.State.roots != "" || e.Held {
			continue
		}
		a, err := parse(all[from])
		if err != nil {
			f.Log.Warn("the last good roots of a SPIFFE bundle cannot be read", "from", shown(from), "reason", err)
			continue
		}
		e.State.roots = a.roots
		events = append(events, policies.BundleEvent(from, a.roots))
	}
	return events
}

// roots returns the last good roots by the address of their bundle.
func (f *Fetcher) roots() map[string]string {
	all := map[string]string{}
	for from, e := range f.fetches.Wanted {
		if e.State.roots != "" {
			all[from] = e.State.roots
		}
	}
	return all
}

// encode writes roots as bundles by address, the smallest first as far as there is room. left is the number of bundles without room. The same
// roots make the same bytes.
func encode(roots map[string]string) (data []byte, left int) {
	size, all := 0, map[string]bundle{}
	for _, from := range slices.SortedFunc(maps.Keys(roots), func(a, b string) int {
		return cmp.Or(len(roots[a])-len(roots[b]), cmp.Compare(a, b))
	}) {
		if size += len(from) + len(roots[from]); size > mostKept {
			left++
			continue
		}
		all[from] = bundleOfRoots(roots[from])
	}
	if len(all) == 0 {
		return nil, left
	}
	data, _ = json.Marshal(all) // texts always have a JSON form
	return data, left
}

// bundleOfRoots returns a bundle with roots that are given as PEM.
func bundleOfRoots(roots string) (b bundle) {
	for rest := []byte(roots); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return b
		}
		b.Keys = append(b.Keys, key{certificateUse, []string{base64.StdEncoding.EncodeToString(block.Bytes)}})
	}
}

// problems returns the reasons why roots are not kept.
func (m *memory) problems() (list []api.Problem) {
	add := func(format string, args ...any) {
		list = append(list, api.Problem{Severity: api.Warning, Code: "state-unwritable", Reason: fmt.Sprintf(format, args...)})
	}
	if m.failure != "" {
		add("the last good roots of SPIFFE bundles cannot be kept: %s; after a restart, roots are not trusted until their bundle is fetched", m.failure)
	}
	if m.left > 0 {
		add("there is no room for the last good roots of %d SPIFFE bundles: after a restart, they are not trusted until their bundle is fetched; name fewer bundles, or bundles with fewer roots", m.left)
	}
	return list
}
