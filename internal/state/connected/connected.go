// Package connected defines the tables and indexes about connected proxies: their reports, the resources that they
// ask for, and the resources that they reject or do not acknowledge.
//
// No source writes these rows, only the loop that owns the store. They are not in the journal, because they say nothing about the
// configuration, and a replica that starts has none of them.
//
// The package starts no goroutines.
package connected

import (
	"encoding/binary"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/rejection"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// Rows are all tables and indexes about connected proxies.
type Rows struct {
	// Proxies are the connected proxies by node id.
	Proxies store.Table[string, *proxy.Proxy]
	// ProxiesIn lists the connected proxies of a namespace, and AllProxies, under the empty key, all of them.
	ProxiesIn  store.Index[string, omap.Name]
	AllProxies store.Index[struct{}, omap.Name]
	// ProxiesOf lists the connected proxies of a version of Istio, and ProxyVersions, under the empty key, the versions that they have.
	ProxiesOf     store.Index[string, omap.Name]
	ProxyVersions store.Index[struct{}, omap.Name]
	// Bootstrapped lists the connected sidecars and gateways of a namespace, and of all namespaces under the empty name: the proxies that have a
	// bootstrap. proxy.AgentOf names the row of the agent that may ask for patches of it.
	Bootstrapped store.Index[string, omap.Name]
	// ProxiesAt lists the connected proxies with an IP address.
	ProxiesAt store.Index[string, omap.Name]
	// RoutersWith lists the connected gateways by each of their labels, and all of them under the empty label.
	RoutersWith store.Index[mesh.Label, omap.Name]

	// Shared are the node ids that connected proxies at several addresses have, with the number of these addresses. SharedIDs lists them
	// under the empty key.
	Shared    store.Table[string, int]
	SharedIDs store.Index[struct{}, omap.Name]

	// Health is the health of workloads that connected proxies report, by connection.
	Health store.Table[string, Health]
	// Registering lists the connections of the proxies that a WorkloadEntry is for, the newest first. WantedEntries lists, under the empty
	// key, the WorkloadEntries that connected proxies are to have.
	Registering   store.Index[api.Key, proxy.Registering]
	WantedEntries store.Index[struct{}, api.Key]

	// Rejections are the rejections of connected proxies.
	Rejections store.Table[RejectionKey, Rejection]
	// RejectionsOf lists the content that a connection rejected. Rejecting lists, under the empty key, the connections with
	// rejections.
	RejectionsOf store.Index[string, RejectedContent]
	Rejecting    store.Index[struct{}, omap.Name]
	// Origins are the objects that rejected content was made of when it was rejected. Content without a row is not looked up yet.
	Origins store.Table[RejectedContent, rejection.Finding]

	// Faults are the cells that failed; FaultKeys lists them under the empty key.
	Faults    store.Table[FaultKey, Fault]
	FaultKeys store.Index[struct{}, FaultKey]

	// Unacknowledged are resources that connected proxies do not acknowledge. UnacknowledgedBy lists the connections that do not acknowledge a
	// resource, and UnacknowledgedNames lists, under the empty key, the resources.
	Unacknowledged      store.Table[UnacknowledgedKey, Unacknowledged]
	UnacknowledgedBy    store.Index[ResourceKey, omap.Name]
	UnacknowledgedNames store.Index[struct{}, ResourceKey]

	// Warming are the resources that connected proxies have received and do not use yet, by connection. No query reads it.
	Warming store.Table[string, Warming]

	// Wants are the resources that connected proxies ask for by name. WantsOf lists the resources of a connection, WantedBy the connections
	// that ask for a resource, and Wanted, under the empty key, all these resources. Asking lists, under the empty key, the resources
	// with the service accounts that ask.
	Wants    store.Table[WantKey, Want]
	WantsOf  store.Index[string, ResourceKey]
	WantedBy store.Index[ResourceKey, omap.Name]
	Wanted   store.Index[struct{}, ResourceKey]
	Asking   store.Index[struct{}, Asked]

	// Full are the sidecars that are refused further hosts on demand, by connection. FullConnections lists them under the empty key.
	Full            store.Table[string, Full]
	FullConnections store.Index[struct{}, omap.Name]
}

// New defines the tables in a store.
func New(db *store.DB) Rows {
	var t Rows
	t.defineRejections(db)
	t.defineFaults(db)
	t.defineUnacknowledged(db)
	t.Warming = store.NewTable[string, Warming](db, "warming", Warming.equal)
	t.defineWants(db)
	t.defineFull(db)
	t.defineProxies(db)
	for _, table := range []interface{ OmitFromJournal() }{
		t.Proxies, t.Shared, t.Health, t.Rejections, t.Origins, t.Faults, t.Unacknowledged, t.Warming, t.Wants, t.Full,
	} {
		table.OmitFromJournal()
	}
	return t
}

// appendLength appends the length of a text, so that several texts in a row are unambiguous.
func appendLength(b []byte, text string) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(len(text)))
}
