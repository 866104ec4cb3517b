package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/disk"
)

// goodFile is the file with the last bootstrap with which Envoy was ready, beside the present one.
const goodFile = "last-good-bootstrap"

// savedRevision is the number of the revision that an earlier agent has left in the file.
const savedRevision = -1

// saved is the content of the file.
type saved struct {
	// Shape is the shape of the bootstrap of the agent that has written the file.
	Shape     string `json:"shape"`
	Bootstrap string `json:"bootstrap"`
	Override  string `json:"override,omitempty"`
}

// shape describes what the agent must find in a bootstrap: the ports and sockets between it and Envoy, and the id of the node.
func shape(c boot.Config) string {
	return fmt.Sprintf("%s admin=%d status=%d xds=%s sds=%s", c.Node.GetId(), c.AdminPort, c.StatusPort, c.Relay, c.SecretsSocket)
}

// loadGood reads the last good bootstrap, if it differs from the first revision and this agent could have written it.
func (p *proxy) loadGood(first revision) {
	text, err := disk.Read(filepath.Join(p.dir, goodFile))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.log.Warn("the last good bootstrap is not used", "error", err)
		}
		return
	}
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		p.log.Warn("the last good bootstrap is not used", "error", err)
		return
	}
	if s.Shape != p.shape || s.Bootstrap == first.text && s.Override == first.options.Override {
		return
	}
	good := first
	good.text, good.options.Override = s.Bootstrap, s.Override
	p.revisions[savedRevision] = good
}

// lastGood returns the number of a revision with which Envoy was ready earlier; 0 if there is none.
func (p *proxy) lastGood() int {
	if _, ok := p.revisions[savedRevision]; ok {
		return savedRevision
	}
	return 0
}

// Serves writes the bootstrap of a revision to the file of the last good one, because Envoy is ready with it.
func (p *proxy) Serves(revision int) {
	p.mu.Lock()
	if revision == p.served[0] {
		p.mu.Unlock()
		return
	}
	p.served = [2]int{revision, p.served[0]}
	r := p.revisions[revision]
	p.mu.Unlock()
	if revision == savedRevision {
		return
	}
	text, err := json.Marshal(saved{Shape: p.shape, Bootstrap: r.text, Override: r.options.Override})
	if err == nil {
		err = write(filepath.Join(p.dir, goodFile), text)
	}
	if err != nil {
		p.log.Warn("the last good bootstrap cannot be kept", "error", err)
	}
}
