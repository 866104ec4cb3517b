// Package secret serves certificates, keys and CA certificates to the agent's Envoy, by SDS on a unix socket.
//
// A Board holds the secrets that streams have requested, and the answer for each. A provider reads the requests from the
// board and posts answers. Files is the provider of secrets from files. Another provider, such as one for identities signed by
// a certificate authority, needs only the board. Streams send the content of the board to Envoy and record its requests.
//
// Invariants:
//   - Every secret that is served has been checked: it parses, and the key matches the certificate.
//   - A good secret is served until there is a newer good one. Problems of the newer one are reported.
//   - A secret that does not exist is refused immediately, so that Envoy does not wait for it. It is never replaced by an empty
//     one, because Envoy would then accept every server.
//   - Keys stay in memory. They do not appear in logs, pages or errors.
//
// Goroutines: Board.Run, Files.Run and Reporter.Run each have one, which package run starts and stops. Each SDS stream has gRPC's
// receiving goroutine and a sending one, for which the former waits.
package secret

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// typeURL is the type URL of all resources of this package.
const typeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// Answer is a provider's answer about one secret. It must not be changed after it was posted.
type Answer struct {
	// Problem says why there is no secret, or no newer version, and how to correct that. It is empty if there is no problem.
	Problem string
	// Remark describes an oddity of a secret that is served nevertheless.
	Remark string
	// Files are the files from which the secret was built.
	Files []string
	// Expires is the end of the certificate's validity; zero for CA certificates.
	Expires time.Time

	version  string     // derived from the content; empty if there is no secret
	resource *anypb.Any // the Secret message; nil if there is no secret
}

// Good reports whether there is a secret.
func (a Answer) Good() bool { return a.resource != nil }

// String describes the answer without keys and certificates.
func (a Answer) String() string {
	if !a.Good() {
		return "no secret: " + a.Problem
	}
	return "secret of version " + a.version
}

// GoString is String, so that %#v does not show keys either.
func (a Answer) GoString() string { return a.String() }

// newAnswer returns the answer for an existing secret.
func newAnswer(s *tlsv3.Secret) (Answer, error) {
	// The encoding must be deterministic, because the version is the hash of the bytes.
	b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(s)
	if err != nil {
		return Answer{}, fmt.Errorf("encoding the secret: %w", err)
	}
	sum := sha256.Sum256(b)
	return Answer{version: hex.EncodeToString(sum[:8]), resource: &anypb.Any{TypeUrl: typeURL, Value: b}}, nil
}

// State is the state of a secret.
type State string

// StateWaiting: no provider has answered yet. StateServed: Envoy gets the newest version. StateKept: Envoy gets an older
// version, because the newest one has a problem. StateMissing: there is no version.
const (
	StateWaiting State = "waiting"
	StateServed  State = "served"
	StateKept    State = "kept"
	StateMissing State = "missing"
)

// States returns all states.
func States() []State { return []State{StateWaiting, StateServed, StateKept, StateMissing} }

// Entry is the entry of one secret on the board.
type Entry struct {
	Name  string
	State State
	Answer
	// Refusal is Envoy's reason for rejecting this version of the secret; empty if Envoy has not rejected it.
	Refusal string
	// Streams is the number of streams that ask for the secret.
	Streams int
	// Since is the time of the last change of state or version.
	Since time.Time

	unwanted time.Time // when the last stream stopped asking for it; zero while there are any
}

// Status describes a secret for operators.
type Status struct {
	Name    string     `json:"name"`
	State   State      `json:"state"`
	Problem string     `json:"problem,omitempty"`
	Remark  string     `json:"remark,omitempty"`
	Refusal string     `json:"refusedByEnvoy,omitempty"`
	Files   []string   `json:"files,omitempty"`
	Version string     `json:"version,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	Since   time.Time  `json:"since"`
	Streams int        `json:"streams"`
}

func (e Entry) status() Status {
	s := Status{
		Name: e.Name, State: e.State, Problem: e.Problem, Remark: e.Remark, Refusal: e.Refusal, Files: e.Files,
		Version: e.version, Since: e.Since, Streams: e.Streams,
	}
	if !e.Expires.IsZero() {
		s.Expires = &e.Expires
	}
	return s
}
