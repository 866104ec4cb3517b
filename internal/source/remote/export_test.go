package remote

import "github.com/pilotmesh/pilot/internal/source"

// Hear makes c hear of a batch of the source of a cluster, and Show sets the clusters that Secrets describe.
func Hear(c *Clusters, id string, b source.Batch) { c.hear(id, b) }
func Show(c *Clusters, list ...source.Cluster)    { c.shown = list }
