// Package observation reduces the outcomes of requests to the compared values, and compares them: observations, answers, verdicts.
//
// Its values are text files under test/exam/cases (NAME.want.json). The package starts no goroutines and reads no clock.
package observation

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/client"
)

// Observation is what a case experienced: NAME.got.json and NAME.want.json.
type Observation struct {
	Title    string      `json:"title"`
	Rejected []Rejection `json:"rejected,omitempty"`
	Warming  []string    `json:"warming,omitempty"`
	Failed   string      `json:"failed,omitempty"` // the case could not be run
	Requests []Request   `json:"requests"`

	// for people, not compared
	Phases  string `json:"-"` // how long each took
	Details string `json:"-"` // log lines of a failure
}

// Rejection is one kind of update that Envoy refused.
type Rejection struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
}

// Request holds, per compared field, the values seen with their counts.
type Request struct {
	Name   string          `json:"name"`
	N      int             `json:"n"`
	Fields map[string]Dist `json:"fields"`

	partial bool // of an answer: only its fields are compared
}

// MarshalJSON writes a field all repetitions agree on as a plain string.
func (s Request) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	for f, d := range s.Fields {
		fields[f] = map[string]int(d)
		for value, n := range d {
			if n == s.N || n == 0 {
				fields[f] = value
			}
		}
	}
	return json.Marshal(struct {
		Name   string         `json:"name"`
		N      int            `json:"n"`
		Fields map[string]any `json:"fields"`
	}{s.Name, s.N, fields})
}

// Dist is a distribution of values. A count of 0, from a plain string in a file, means all repetitions.
type Dist map[string]int

// UnmarshalJSON reads a plain string or counts by value.
func (d *Dist) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*d = Dist{s: 0}
		return nil
	}
	var m map[string]int
	err := json.Unmarshal(b, &m)
	*d = m
	return err
}

func (d Dist) String() string {
	const shown = 4
	keys := slices.Sorted(maps.Keys(d))
	if len(keys) == 1 {
		return keys[0]
	}
	slices.SortStableFunc(keys, func(a, b string) int { return d[b] - d[a] })
	more := ""
	if len(keys) > shown {
		more = fmt.Sprintf(" and %d more", len(keys)-shown)
		keys = keys[:shown]
	}
	slices.Sort(keys)
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s×%d", k, d[k])
	}
	return strings.Join(keys, " ") + more
}

// See reduces the outcomes of one request entry to the compared values.
func See(r *casefile.Request, outcomes []client.Outcome) Request {
	s := Request{Name: r.Name, N: len(outcomes), Fields: map[string]Dist{}}
	for _, o := range outcomes {
		for k, v := range fields(r, &o) {
			if s.Fields[k] == nil {
				s.Fields[k] = Dist{}
			}
			s.Fields[k][v]++
		}
	}
	return s
}

const none = "(none)"

func fields(r *casefile.Request, o *client.Outcome) map[string]string {
	f := map[string]string{}
	set := func(k, v string) {
		if v != "" {
			f[k] = v
		}
	}
	set("error", errorClass(o.Error))
	if o.Status != 0 {
		f["status"] = strconv.Itoa(o.Status)
	}
	set("backend", o.Backend)
	switch {
	case o.Echo != nil:
		f["method"], f["path"], f["authority"] = o.Echo.Method, o.Echo.Path, o.Echo.Authority
	case o.Status != 0 && o.Backend == "" || r.TCP != nil:
		set("body", directBody(o.Body))
		if l := o.Header["location"]; len(l) > 0 {
			f["location"] = l[0]
		}
	}
	for _, w := range r.Watch {
		f[w] = watched(o, w)
		if f[w] == "" {
			f[w] = none
		}
	}
	return f
}

// errorClass joins the two ways a closed connection can look: which one shows depends on timing.
func errorClass(e string) string {
	if e == "eof" || e == "reset" {
		return "closed"
	}
	return e
}

// directBody reduces Envoy's own texts to their kind.
func directBody(b string) string {
	b = strings.TrimSpace(b)
	for _, kind := range []string{"upstream connect error", "no healthy upstream", "RBAC: access denied", "fault filter abort", "upstream request timeout", "local_rate_limited"} {
		if strings.HasPrefix(b, kind) {
			return kind
		}
	}
	return b[:min(len(b), 500)]
}

func watched(o *client.Outcome, w string) string {
	if h, ok := strings.CutPrefix(w, "resp."); ok {
		v := strings.Join(o.Header[strings.ToLower(h)], ", ")
		if strings.EqualFold(h, "set-cookie") {
			v = cookieValue.ReplaceAllString(v, "${1}*${2}")
		}
		return v
	}
	switch w {
	case "time":
		return timeClass(o.Seconds)
	case "clientproto":
		return o.Proto
	case "cert":
		return o.Cert
	case "hits":
		return strings.Join(o.Hits, "; ")
	case "body":
		if o.Echo != nil {
			return o.Echo.Body
		}
		return directBody(o.Body)
	}
	if o.Echo == nil {
		return ""
	}
	if h, ok := strings.CutPrefix(w, "req."); ok {
		return clientCert.ReplaceAllString(strings.Join(o.Echo.Headers[strings.ToLower(h)], ", "), "$1$2=*")
	}
	return map[string]string{"sni": o.Echo.SNI, "alpn": o.Echo.ALPN, "peer": o.Echo.Peer, "proto": o.Echo.Protocol, "source": o.Echo.From, "src": o.Echo.From}[w]
}

// cookieValue is a cookie's value as Envoy generates it: random.
var cookieValue = regexp.MustCompile(`(="?)[0-9a-f]{16,}("?)`)

// clientCert is what a forwarded client certificate says that is new in every run.
var clientCert = regexp.MustCompile(`(Hash)=[0-9a-f]{64}|(?:(Cert|Chain)="[^"]*")`)

func timeClass(s float64) string {
	if s < 0.3 {
		return "<0.3s"
	}
	return fmt.Sprintf("%.1fs", math.Max(0.5, math.Round(s*2)/2))
}

// Write stores the observation.
func (o *Observation) Write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// Read loads an observation.
func Read(path string) (*Observation, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	o := &Observation{}
	if err := json.Unmarshal(b, o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, r := range o.Requests {
		for _, old := range []string{"eof", "reset"} {
			if n, ok := r.Fields["error"][old]; ok {
				delete(r.Fields["error"], old)
				r.Fields["error"][errorClass(old)] += n
			}
		}
	}
	return o, nil
}
