package mesh

// KeyFetcher is the component that fetches key sets.
type KeyFetcher uint8

// Who fetches key sets (PILOT_JWT_ENABLE_REMOTE_JWKS).
const (
	// ControlPlaneFetches is the default.
	ControlPlaneFetches KeyFetcher = iota
	// ProxyMayFetch lets a proxy fetch the keys that a service which it sees has. The control plane fetches them, too, for other proxies.
	ProxyMayFetch
	// ProxyFetches leaves it to the proxies. One that does not see the service rejects the tokens.
	ProxyFetches
)
