// Package access decides what becomes of a described request to a workload, from the inbound listener that the proxy of the workload
// is given. It reads nothing else, so its answer cannot differ from the proxy's configuration.
//
// It evaluates what this control plane generates: filter chains, TLS, the normalisation of paths, and the filters RBAC, JWT
// authentication and external authorization, for HTTP and for other connections. A feature that it does not know, or an attribute
// that the description leaves open, makes the answer "unknown" where it matters; nothing is guessed. An unknown part of a rule does
// not matter if the other parts decide.
//
// Everything here is a pure function. The package starts no goroutines.
package access

import (
	"net/netip"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
)

// Request describes a request, or a connection that is not HTTP.
type Request struct {
	// Port is the port of the workload at which the connection arrives, and Address the workload's address; zero if it is not known.
	Port    uint32
	Address netip.Addr
	// Source is the address of the client; zero if it is not known.
	Source netip.Addr
	// TLS is what the client shows; nil for plain text.
	TLS *TLS
	// TCP is true if the client does not speak HTTP. The fields below do not count then.
	TCP bool
	// HTTP2 is true if the client speaks HTTP/2.
	HTTP2 bool
	// Host is the Host header, or :authority. Path has the query.
	Method, Host, Path string
	// Headers are in the order in which they are sent. A name may come several times.
	Headers []Header
	// Tokens describe the tokens that the headers and the path of the request hold, by their text.
	Tokens map[string]Token
}

// Header is a header of a request.
type Header struct{ Name, Value string }

// TLS is how a client speaks TLS.
type TLS struct {
	// Identity is the SPIFFE ID in the certificate that the authority of the mesh has signed for the client; empty if the client has
	// none.
	Identity string
	// ALPN are the protocols that the client offers.
	ALPN []string
	// ServerName is the name of the server that the client asks for (SNI). It counts only if HasServerName is true; otherwise it is
	// not known.
	ServerName    string
	HasServerName bool
}

// Token is a JSON Web Token.
type Token struct {
	Claims map[string]any
	// Expired tokens are not valid any more, or not yet. Forged ones have another signature than the keys of their issuer make.
	Expired, Forged bool
}

// Verdict is a short answer.
type Verdict string

// The verdicts.
const (
	// Allowed means that the request reaches the application.
	Allowed Verdict = "allow"
	// Denied means that it does not.
	Denied Verdict = "deny"
	// Asked means that an external authorizer decides.
	Asked Verdict = "ask"
	// Unknown means that the verdict cannot be determined.
	Unknown Verdict = "unknown"
)

// Stage is a part of the way of a request through a proxy.
type Stage string

// The stages, in order.
const (
	// AtConnection is where filter chains are chosen and TLS is terminated.
	AtConnection Stage = "connection"
	// AtProtocol is where the proxy refuses requests that it does not understand.
	AtProtocol Stage = "protocol"
	// AtTokens is where tokens are verified, and AtPolicies where the rules of AuthorizationPolicies count.
	AtTokens   Stage = "tokens"
	AtPolicies Stage = "policies"
)

// Decision is what becomes of a request.
type Decision struct {
	Verdict Verdict
	// Stage is where the request was denied.
	Stage Stage
	// Status is the status of the proxy's response if the request is denied; 0 if the connection is closed instead.
	Status int
	// HTTP is true if the request was looked at as HTTP, and false if only its connection was.
	HTTP bool
	// Policy is the name of Envoy's policy that decided; empty if another thing did.
	Policy string
	// Reason says what decided if that is no policy, or why the verdict is unknown.
	Reason string
	// Provider is the cluster of the external authorizer that is asked; empty if none is.
	Provider string
	// Path is the path of the request, without its query, as policies see it.
	Path string
	// Noted are the policies that matched and do not decide, in order.
	Noted []Note
}

// Note is a policy that matched and does not decide.
type Note struct {
	Policy string
	// Audit is true if the policy only asks for a log entry. Otherwise it is tried out, and Denies says whether it would deny.
	Audit, Denies bool
}

// Options are facts that the listener does not contain.
type Options struct {
	// Keyless reports whether the keys of an issuer are not known, so that none of its tokens is valid.
	Keyless func(*jwtv3.JwtProvider) bool
}

// Evaluate decides what becomes of a request that arrives at a listener.
func Evaluate(l *listenerv3.Listener, r Request, o Options) Decision {
	e := &evaluation{Request: r, options: o, metadata: map[string]map[string]any{}}
	e.decision.Verdict, e.stage = Allowed, AtConnection
	e.Source, e.Address = e.Source.Unmap(), e.Address.Unmap() // Envoy writes addresses of connections so
	e.listener(l)
	return e.conclude()
}

// evaluation is a request on its way through a listener.
type evaluation struct {
	Request
	options  Options
	decision Decision
	stage    Stage
	// decided ends the evaluation.
	decided bool
	// doubt says why an earlier step is unknown; empty if none is. A later step may still deny.
	doubt string
	// why collects the reasons why matchers of the present filter are unknown.
	why []string
	// peer is what the certificate of the client shows; nil if no TLS was terminated.
	peer *peer
	// serverName is the name that the client asked for; knowsServerName is false if it is not known.
	serverName      string
	knowsServerName bool
	// headers are the headers of the request, with names in lower case; nil for connections.
	headers *headers
	// remote is the address of the client according to the headers.
	remote netip.Addr
	// metadata is what filters wrote, by their names.
	metadata map[string]map[string]any
}

// peer is the client of a connection with TLS.
type peer struct{ uris []string }

// deny ends the evaluation.
func (e *evaluation) deny(status int, policy, reason string) {
	e.decided = true
	e.decision.Stage, e.decision.Provider = e.stage, ""
	e.decision.Verdict, e.decision.Status, e.decision.Policy, e.decision.Reason = Denied, status, policy, reason
}

// doubted records why a step is unknown. The first reason counts.
func (e *evaluation) doubted(reason string) {
	if e.doubt == "" {
		e.doubt = reason
	}
}

// conclude returns the decision. A denial counts whatever is in doubt before it.
func (e *evaluation) conclude() Decision {
	d := e.decision
	switch {
	case d.Verdict == Denied:
	case e.doubt != "":
		d.Verdict, d.Policy, d.Reason = Unknown, "", e.doubt
	case d.Provider != "":
		d.Verdict = Asked
	}
	return d
}
