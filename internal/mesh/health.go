package mesh

// UnreadyEndpoints says whether clients know endpoints that take no requests at the moment.
type UnreadyEndpoints uint8

// The choices.
const (
	// UnreadyUnlessUsed: clients know them, except where a rule makes Envoy use all endpoints if few of them are healthy.
	UnreadyUnlessUsed UnreadyEndpoints = iota
	// UnreadyAlways: clients always know them, and Envoy never uses them.
	UnreadyAlways
	// UnreadyNever: clients do not know them.
	UnreadyNever
)

// Health is whether an endpoint takes requests.
type Health uint8

// The states of endpoints. Endpoints in a state before Draining may take requests of new sessions.
const (
	// Healthy endpoints take requests.
	Healthy Health = iota
	// Unready endpoints take no requests at the moment. Clients know them, so that they can be used in an emergency.
	Unready
	// Draining endpoints are about to end. They take requests of existing sessions, and clients of services without sessions do not get them.
	Draining
	// Unusable endpoints are not sent to clients.
	Unusable
)
