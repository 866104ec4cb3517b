// Package secret serves certificates, keys and roots to the agent's Envoy, by SDS on a unix socket.
//
// A Board says which secrets are wanted and what each one is. A provider reads there what is wanted of it, and posts
// answers; Files is the provider of what lies in files. Another one, such as an identity that a certificate authority
// signs, needs nothing else of this package. A stream hands Envoy what the board says, and tells the board what Envoy
// wants.
//
// Invariants:
//   - What is served was checked: it parses, and the key is the certificate's.
//   - A secret that was good stays until a newer one is. What is wrong with the newer one is told.
//   - A secret that cannot be had is refused at once, so that Envoy does not wait for it, and never replaced by an
//     empty one: Envoy would accept every server then.
//   - Keys stay in memory. No log line, page or error has one.
//
// The goroutines are Board.Run and Files.Run, which package run owns, and for each stream the one of gRPC that receives
// and one that sends, which the former waits for. The package must not import settings or processes.
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

// typeURL is the type of all that is served.
const typeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// Answer is what a provider says of one secret. It is not changed after it was posted.
type Answer struct {
	// Problem says why there is no secret, or no newer one, and what to do. Empty: all is well.
	Problem string
	// Remark says what is odd about a secret that is served all the same.
	Remark string
	// Files are what the secret was made of.
	Files []string
	// Expires is when the certificate does; zero for roots.
	Expires time.Time

	version  string     // of the content; empty if there is no secret
	resource *anypb.Any // the Secret, nil if there is none
}

// Good reports whether there is a secret.
func (a Answer) Good() bool { return a.resource != nil }

// String tells what may be told: no key, and no certificate.
func (a Answer) String() string {
	if !a.Good() {
		return "no secret: " + a.Problem
	}
	return "secret of version " + a.version
}

// GoString is String: %#v must not show keys either.
func (a Answer) GoString() string { return a.String() }

// good is the answer that there is a secret, of this content.
func good(s *tlsv3.Secret) (Answer, error) {
	// Deterministic, because the version is that of the bytes.
	b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(s)
	if err != nil {
		return Answer{}, fmt.Errorf("encoding the secret: %w", err)
	}
	sum := sha256.Sum256(b)
	return Answer{version: hex.EncodeToString(sum[:8]), resource: &anypb.Any{TypeUrl: typeURL, Value: b}}, nil
}

// State says how a secret stands.
type State string

// Waiting: nobody has answered yet. Served: Envoy is given the newest. Kept: Envoy is given an older one, because the
// newest is not good. Missing: there is none.
const (
	Waiting State = "waiting"
	Served  State = "served"
	Kept    State = "kept"
	Missing State = "missing"
)

// States lists all of them.
func States() []State { return []State{Waiting, Served, Kept, Missing} }

// Entry is what the board says of one secret.
type Entry struct {
	Name  string
	State State
	Answer
	// Refusal is what Envoy said when it rejected this version of the secret; empty if it has not.
	Refusal string
	// Streams is how many ask for it.
	Streams int
	// Since is when the state or the version changed last.
	Since time.Time

	unwanted time.Time // when the last stream left; zero while there are any
}

// Status describes a secret to an operator.
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
