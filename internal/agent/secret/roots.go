package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/pilotmesh/pilot/internal/run/filewatch"
	"github.com/pilotmesh/pilot/internal/security/credential"
)

// ofAuthority names the source of the roots in errors.
const ofAuthority = "the roots of the authority"

// rereadCRL is how often the file of revoked certificates is read without a sign that it has changed. Some changes create no event.
const rereadCRL = 10 * time.Second

// followCRL reads the file of revoked certificates, and returns a channel that receives when it is time to read again. If the file
// cannot be read, the last good lists stay in force.
func (i *Issued) followCRL() <-chan time.Time {
	if i.o.CRL == "" {
		return nil
	}
	i.watched.Follow([]string{i.o.CRL})
	var lists []byte
	content, err := filewatch.Read(i.o.CRL)
	if err == nil {
		lists, err = credential.RevocationLists(content)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		i.o.Log.Warn("revoked certificates cannot be read, so the last good lists stay in force", "file", i.o.CRL, "error", err)
	} else if !bytes.Equal(lists, i.crl) {
		i.crl = lists
		i.renewRoots()
	}
	return time.After(rereadCRL)
}

// renewRoots rebuilds the roots for Envoy: the roots of the authority, the anchors, and the lists of revoked certificates.
func (i *Issued) renewRoots() {
	h := i.held.Load()
	if h == nil {
		return
	}
	roots, err := makeRoots(meshRoots, ofAuthority, i.bundle(h), i.crl)
	if err != nil || roots.version == h.answers[meshRoots].version {
		return // the roots were fit for use when they were taken
	}
	next := *h
	next.answers = maps.Clone(h.answers)
	next.answers[meshRoots] = roots
	i.held.Store(&next)
}

// bundle returns the roots of the authority, and the anchors.
func (i *Issued) bundle(h *held) []byte { return append(bytes.Clone(h.roots), i.anchors...) }

// Bounds of trust bundles.
const (
	maxAnchors     = 256
	maxAnchorBytes = 1 << 20
)

// anchors delivers roots, as PEM, to the goroutine of a provider, which trusts them in addition to its own.
type anchors chan []byte

func newAnchors() anchors { return make(anchors, 1) }

// set replaces the roots that were set before. Each text is PEM with one or several certificates.
func (a anchors) set(texts []string) error {
	var all []byte
	for n, text := range texts {
		roots, remark, err := credential.Roots([]byte(text))
		if err == nil && remark != "" {
			err = errors.New(remark)
		}
		if err != nil {
			return fmt.Errorf("certificate %d of the trust bundle: %w", n+1, err)
		}
		all = append(all, roots...)
		if len(texts) > maxAnchors || len(all) > maxAnchorBytes {
			return fmt.Errorf("the trust bundle has more than %d entries or %d bytes", maxAnchors, maxAnchorBytes)
		}
	}
	for {
		select {
		case a <- all:
			return nil
		case <-a: // earlier ones, not taken yet
		}
	}
}

// Trust makes Envoy trust some roots in addition to the authority's. They replace the roots of an earlier call. Each text is PEM with one or
// several certificates. If one cannot be used, none is, and the earlier roots stay. The agent itself still trusts its own roots only.
func (i *Issued) Trust(texts []string) error { return i.trusted.set(texts) }

// Trust is like Issued.Trust, for roots of the mesh that are in a file.
func (f *Files) Trust(texts []string) error { return f.trusted.set(texts) }
