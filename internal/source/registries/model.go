// Package registries is the source of services in registries outside Kubernetes, and of configuration from MCP servers. It reads the registries file, runs one reader for each
// registry in it, and turns what readers report into services of the mesh.
//
// It owns the contract of the file (file.go) and of configSources in the mesh configuration (sources.go), how an instance of a registry becomes an
// endpoint (convert.go), and when a registry is believed (room.go, objects.go): the last services of a registry stay while it cannot be read, and a first list after that is held for a while if it would
// take away most instances. Packages beside this one read one kind of registry each; they know nothing of these rules.
//
// Invariants:
//   - A registry that does not answer delays no other one.
//   - All that a reader reports at once becomes one batch.
//   - Access policies of an MCP server that cannot be read stay in force over a restart of the control plane, and refused ones deny.
//   - Secrets are read from files only. They are in no Problem, log or page.
//
// Goroutines: one per registry, which comes and goes with its entry in the file. Run waits for them. Batches leave under a lock.
package registries

import (
	"context"
	"log/slog"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// Port is a port of an instance.
type Port struct {
	Number uint32
	// Target is the port of the instance, if that is another one.
	Target uint32
	// Protocol is the name of the protocol as the registry has it. If it is empty, the metadata of the instance or the file decides.
	Protocol string
	// Remark is why the port does not have the protocol that the instance speaks; empty if it has.
	Remark string
}

// Instance is an instance of a service, as a registry has it.
type Instance struct {
	// ID identifies the instance in its service.
	ID string
	// Address is an IP address or a name.
	Address string
	Ports   []Port
	// Labels are the metadata. Invalid labels are left out later.
	Labels map[string]string
	// Weight is the share of traffic beside the other instances, as text; empty for 1.
	Weight string
	// Locality is set if the registry has a form of its own for the place of an instance.
	Locality mesh.Locality
	// Down is why the instance must not get traffic; empty if it may.
	Down string
	// External is true if the instance is outside the mesh.
	External bool
}

// Service is a service, as a registry has it.
type Service struct {
	// Listed is the name by which the registry lists the service and the file means it; empty for the key in Services.
	Listed string
	// HostName is the host without its suffix, and Suffix is the suffix if the file has none.
	HostName, Suffix string
	// Protocol is the protocol of instances for which neither they nor the file say one.
	Protocol string
	// Dubbo is set for an interface of Dubbo that dubbo_proxy can route.
	Dubbo *mesh.DubboInterface
	// Instances are in the order of their IDs.
	Instances []Instance
	// Unread are the parts of the service that cannot be read.
	Unread []Remark
}

// Remark is a mistake in a part of a registry.
type Remark struct {
	// Place is where the part is in the registry.
	Place string
	// Reason names the mistake and the remedy.
	Reason string
}

// Services are services by their names in the registry.
type Services map[string]*Service

// Listener receives what a reader finds out. Its methods may be called from one goroutine at a time.
type Listener interface {
	// List replaces all that is known: the first complete list after a loss of sight. sure is false if the server may hide services or
	// instances from us.
	List(all Services, sure bool)
	// Change replaces some services. A nil service is gone. The server is believed.
	Change(some Services)
	// Lost reports that the server cannot be read for now.
	Lost(err error)
	// Refused reports that the server does not let us read.
	Refused(err error)
	// Remark replaces the remarks that belong to no service.
	Remark(remarks []Remark)
	// Objects takes what a server of configuration says of the objects of a kind.
	Objects(change ObjectChange)
	// Listed reports that a server of configuration can be read and has said all that it says about kinds without being asked again.
	Listed()
}

// Reader reads one registry until ctx is cancelled, and retries by itself. It returns after its own goroutines have ended.
type Reader interface {
	Run(ctx context.Context, to Listener)
}

// Factory makes the reader of an entry. An error names the mistake in the entry.
type Factory func(e Entry, a Access, log *slog.Logger) (Reader, error)
