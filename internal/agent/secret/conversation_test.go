package secret

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

var update = flag.Bool("update", false, "rewrite the conversations in testdata from what the protocol core does")

// A conversation file holds conversations. Each begins with "== TITLE"; the file's name says the variant. Then come
// lines, and under each, indented, the reaction of the core: its calls of the board, and its responses.
//
//	has a 1           the board has version 1 of a
//	without a         a does not exist
//	waits a           a has no answer yet
//	asks a b          State-of-the-World: a request that names these; "nonce=1" and "nack" answer a response
//	asks +a -b        delta: the same; "has=a:1" says what the client has
//
// "-" is the reaction to a line that changes nothing.
type conversation struct {
	core    *core
	delta   bool
	entries map[string]Entry
}

func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want), strings.HasPrefix(filepath.Base(file), "delta"))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s differs; go test -update rewrites it. Got:\n%s", file, got)
			}
		})
	}
}

func replay(t *testing.T, text string, delta bool) string {
	t.Helper()
	var out strings.Builder
	var c *conversation
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "):
			continue
		case line == "":
			out.WriteString("\n")
			continue
		case strings.HasPrefix(line, "=="):
			c = &conversation{core: newCore(), delta: delta, entries: map[string]Entry{}}
			out.WriteString(line + "\n")
			continue
		}
		did, err := c.line(strings.Fields(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if len(did) == 0 {
			did = []string{"-"}
		}
		out.WriteString(line + "\n  " + strings.Join(did, "\n  ") + "\n")
	}
	return out.String()
}

func (c *conversation) line(words []string) (did []string, err error) {
	if len(words) < 2 {
		return nil, errors.New("too short")
	}
	switch name := words[1]; words[0] {
	case "has":
		version := words[2]
		c.entries[name] = Entry{Name: name, State: StateServed, Answer: Answer{version: version, resource: &anypb.Any{TypeUrl: typeURL, Value: []byte(version)}}}
	case "without":
		c.entries[name] = Entry{Name: name, State: StateMissing, Answer: Answer{Problem: "it is not there"}}
	case "waits":
		c.entries[name] = Entry{Name: name, State: StateWaiting}
	case "asks":
		did = c.asks(words[1:])
	default:
		return nil, errors.New("no such word")
	}
	return append(did, c.sends()...), nil
}

func (c *conversation) asks(words []string) []string {
	state, delta := &discoveryv3.DiscoveryRequest{}, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{}}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case key == "nonce":
			state.ResponseNonce, delta.ResponseNonce = value, value
		case key == "nack":
			state.ErrorDetail = &rpcstatus.Status{Message: "bad"}
			delta.ErrorDetail = state.ErrorDetail
		case key == "has":
			name, version, _ := strings.Cut(value, ":")
			delta.InitialResourceVersions[name] = version
		case key == "nothing":
		case w[0] == '+':
			delta.ResourceNamesSubscribe = append(delta.ResourceNamesSubscribe, w[1:])
		case w[0] == '-':
			delta.ResourceNamesUnsubscribe = append(delta.ResourceNamesUnsubscribe, w[1:])
		default:
			state.ResourceNames = append(state.ResourceNames, w)
		}
	}
	ch := change{}
	if c.delta {
		ch = c.core.delta(delta)
	} else {
		ch = c.core.state(state)
	}
	var did []string
	if len(ch.more) > 0 {
		did = append(did, fmt.Sprint("wants ", ch.more))
	}
	if len(ch.less) > 0 {
		did = append(did, fmt.Sprint("no longer wants ", ch.less))
	}
	for _, r := range ch.rejected {
		did = append(did, fmt.Sprintf("rejects %s@%s: %s", r.name, r.version, r.reason))
	}
	return did
}

func (c *conversation) sends() []string {
	var did []string
	if c.delta {
		if r := c.core.deltas(c.entries); r != nil {
			line := "sends nonce=" + r.GetNonce()
			for _, x := range r.GetResources() {
				line += " " + x.GetName() + "@" + x.GetVersion()
			}
			for _, name := range slices.Sorted(slices.Values(r.GetRemovedResources())) {
				line += " removed:" + name
			}
			did = append(did, line)
		}
		return did
	}
	for _, r := range c.core.states(c.entries) {
		line := "sends nonce=" + r.GetNonce() + " version=" + r.GetVersionInfo()
		for _, x := range r.GetResources() {
			if x.GetTypeUrl() == typeURL {
				line += " secret@" + string(x.GetValue())
				continue
			}
			s := &rpcstatus.Status{}
			if err := x.UnmarshalTo(s); err != nil {
				line += " " + err.Error()
			}
			line += fmt.Sprintf(" refusal(%s)", s.GetMessage())
		}
		did = append(did, line)
	}
	return did
}
