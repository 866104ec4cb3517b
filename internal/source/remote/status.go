package remote

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/source"
)

// heard is what the source of a cluster has passed on.
type heard struct {
	synced bool
	// unreadable are the present problems about what cannot be read, and how many there are of each text.
	unreadable map[string]int
}

// Statuses describes the remote clusters, sorted by ID. It may be called from any goroutine.
func (c *Clusters) Statuses() []source.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]source.Cluster, 0, len(c.shown))
	for _, one := range c.shown {
		one.Problems = slices.Clone(one.Problems)
		if one.State != source.ClusterRefused {
			one.State = source.ClusterSyncing
			if h := c.heard[one.ID]; h != nil {
				one.Problems = append(one.Problems, slices.Sorted(maps.Keys(h.unreadable))...)
				switch {
				case h.synced && len(h.unreadable) > 0:
					one.State = source.ClusterStale
				case h.synced:
					one.State = source.ClusterSynced
				}
			}
		}
		list = append(list, one)
	}
	return list
}

// hear takes in a batch of the source of a cluster, on the goroutine of that source.
func (c *Clusters) hear(id string, b source.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.heard[id]
	if h == nil {
		h = &heard{unreadable: map[string]int{}}
		c.heard[id] = h
	}
	h.synced = h.synced || b.Synced
	for _, e := range b.Problems {
		if e.Problem.Code != "cluster-unreadable" {
			continue
		}
		n := 1
		if e.Gone {
			n = -1
		}
		if h.unreadable[e.Problem.Reason] += n; h.unreadable[e.Problem.Reason] <= 0 {
			delete(h.unreadable, e.Problem.Reason)
		}
	}
}

func (c *Clusters) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heard, id)
}

// show sets the clusters that Statuses describes.
func (r *run) show(all map[string]described) {
	list := make([]source.Cluster, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		one := source.Cluster{ID: id, Secret: all[id].secret.Namespace + "/" + all[id].secret.Name}
		for _, p := range r.found {
			if p.Object == keyOf(all[id].secret) && p.Field == fieldOf(id) {
				one.Problems = append(one.Problems, p.Reason)
			}
		}
		if read := r.clusters[id]; read != nil {
			one.Server = read.server
		} else {
			one.State = source.ClusterRefused
		}
		list = append(list, one)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown = list
}

// fieldOf is the field of a Secret that describes a cluster.
func fieldOf(id string) string { return fmt.Sprintf("data[%s]", id) }
