package registry

import "time"

// The states of a registry, as pages show them.
const (
	// Connecting: it has never been listed.
	Connecting = "connecting"
	// Synced: its services are in force.
	Synced = "synced"
	// Stale: it has been listed, and cannot be read now.
	Stale = "stale"
	// Held: the protection is holding instances that it does not list any more.
	Held = "held"
	// Failed: it refuses us, or its settings cannot be used.
	Failed = "failed"
)

// Status is the state of a registry, for pages and metrics.
type Status struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// State is one of the constants.
	State string `json:"state"`
	// LastSync is when the registry was last read without an error; nil if never.
	LastSync *time.Time `json:"lastSync,omitempty"`
	// LastError is why it cannot be read now; empty if it can.
	LastError string `json:"lastError,omitempty"`
	// Services and Instances count the services and instances in force, Held the held ones among them.
	Services  int `json:"services"`
	Instances int `json:"instances"`
	Held      int `json:"held"`
	// Problems are what of the registry is not used, and why.
	Problems []string `json:"problems"`
}
