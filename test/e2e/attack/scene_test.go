package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

type object = map[string]any

// want is the expected outcome of an attack.
type want string

const (
	reached want = "reached" // the application gets it
	refused want = "refused"
	either  want = "either" // can-i must say what becomes of it, and what the application sees must not be forbidden
)

// attack is a row of a table.
type attack struct {
	what string
	hit  hit
	want want
}

// scene is a set of policies, and attacks on them.
type scene struct {
	name     string
	policies []policy
	mesh     string // settings of the mesh beyond the usual ones
	// forbidden reports whether the application must not have seen this; nil if every look at it was decided by the wants.
	forbidden func(*seen) bool
	attacks   []attack
}

// gapsFile lists the attacks that are known to fail: `test/scene/attack: topic`.
const gapsFile = "testdata/gaps.txt"

var findGaps = flag.Bool("gaps", false, "print what fails in the form of "+gapsFile+", instead of failing")

// readGaps reads the list of known gaps: topics by names.
func readGaps(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open(gapsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		topic, name, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("%s: %q is not `topic: test/scene/attack`", gapsFile, line)
		}
		list[name] = topic
	}
	return list
}

// play puts each scene in force and performs its attacks.
func (b *bed) play(t *testing.T, scenes ...scene) {
	t.Helper()
	gaps := readGaps(t)
	for _, s := range scenes {
		b.enforce(t, s.mesh, s.policies...)
		met, answers := make([]outcome, len(s.attacks)), make([]string, len(s.attacks))
		together(len(met), func(i int) {
			met[i] = b.strike(t.Context(), s.attacks[i].hit)
			answers[i] = b.disagrees(t.Context(), s.attacks[i].hit, met[i])
		})
		for i, a := range s.attacks {
			judge(t, gaps, s, a, met[i], answers[i])
		}
		t.Logf("%s: %d attacks", s.name, len(s.attacks))
	}
}

// judge compares an outcome with the expected one. answer says how can-i differs.
func judge(t *testing.T, gaps map[string]string, s scene, a attack, o outcome, answer string) {
	t.Helper()
	var wrong []string
	switch {
	case a.want == refused && o.reached():
		wrong = append(wrong, "it must be refused")
	case a.want == reached && !o.reached():
		wrong = append(wrong, "it must reach the application")
	case a.want == either && o.reached() && s.forbidden != nil && s.forbidden(o.seen):
		wrong = append(wrong, "the application must not see this")
	}
	if answer != "" {
		wrong = append(wrong, answer)
	}
	verdict(t, gaps, fmt.Sprintf("%s/%s/%s", t.Name(), s.name, a.what), wrong, o)
}

// verdict reports a wrong row, unless it is a known gap; and a gap that is none any more.
func verdict(t *testing.T, gaps map[string]string, name string, wrong []string, o fmt.Stringer) {
	t.Helper()
	name = fmt.Sprintf("%.200q", name)
	topic, known := gaps[name]
	switch {
	case len(wrong) == 0 && known:
		t.Errorf("%s holds now: remove its line from %s", name, gapsFile)
	case len(wrong) > 0 && *findGaps:
		fmt.Printf("GAP %s: %s: %s\n    %s\n", "?", name, strings.Join(wrong, "; "), o)
	case len(wrong) > 0 && !known:
		t.Errorf("%s: %s\n%s", name, strings.Join(wrong, "; "), o)
	case len(wrong) > 0:
		t.Logf("known gap (%s): %s: %s", topic, name, strings.Join(wrong, "; "))
	}
}

// accounts are the service accounts of certificates for which can-i has words, with their trust domains.
func accounts() map[string][2]string {
	return map[string][2]string{
		"cli": {"front/cli"}, "admin": {"ops/admin"}, "evil": {"evil/evil"}, "alias": {"ops/admin", "old.td"}, "foreign": {"ops/admin", "other.td"},
	}
}

// question is an attack as parameters of can-i; ok is false if it has no words for it.
func (h hit) question() (q url.Values, ok bool) {
	who, known := accounts()[h.cert]
	service := h.port == httpPort || h.port == http2Port || h.port == anyPort || h.port == tcpPort
	if h.unasked || !service || h.cert != "" && !known || h.version == "HTTP/1.0" {
		return nil, false
	}
	// No service account is known of who speaks plain text, which is what the answer must say even if one is claimed.
	q = url.Values{"to": {fmt.Sprintf("web.shop:%d", h.port)}, "from": {"front/cli"}, "plaintext": {""}}
	if h.cert != "" {
		q = url.Values{"to": q["to"], "from": {who[0]}, "mtls": {""}}
		if who[1] != "" {
			q.Set("trust-domain", who[1])
		}
	}
	if h.source != "" {
		q.Set("from-ip", h.source)
	}
	if h.raw != "" {
		q.Set("tcp", "")
		return q, true
	}
	q.Set("method", h.method)
	q.Set("path", h.path)
	q.Set("host", h.host)
	if h.claims != "" {
		q.Set("jwt-claims", h.claims)
	}
	for _, f := range h.headers {
		if h.claims != "" && strings.EqualFold(f.Name, "authorization") {
			continue // the token
		}
		q.Add("header", f.Name+"="+f.Value)
	}
	return q, plain(h.method+h.path+h.host) && h.method != "" && h.path != "" && h.host != "" && len(h.path) < 3000
}

// plain reports whether a text has printable characters of ASCII only, and no blank.
func plain(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// disagrees says how the answer of can-i differs from what an attack met; "" if it does not, or there is none.
func (b *bed) disagrees(ctx context.Context, h hit, o outcome) string {
	q, ok := h.question()
	if !ok {
		return ""
	}
	text, err := b.plane.Get(ctx, "/debug/can-i?"+q.Encode())
	if err != nil {
		if strings.Contains(err.Error(), "400") {
			return "" // the page says that it has no words for it
		}
		return err.Error()
	}
	var page struct {
		Answers []struct{ Verdict string }
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Answers) != 1 {
		return fmt.Sprintf("%v: can-i answers %s", err, text)
	}
	switch a := page.Answers[0]; {
	case a.Verdict == "allow" && !o.reached(), a.Verdict == "deny" && o.reached():
		return "can-i says " + a.Verdict
	}
	return "" // "unknown" and "ask" decide nothing
}

// await waits until check passes.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := testbed.Until(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}

// until repeats an attack until its outcome is the expected one.
func (b *bed) until(t *testing.T, what string, h hit, w want) {
	t.Helper()
	await(t, what, func(ctx context.Context) error {
		if o := b.strike(ctx, h); o.reached() != (w == reached) {
			return fmt.Errorf("%s", o)
		}
		return nil
	})
}
