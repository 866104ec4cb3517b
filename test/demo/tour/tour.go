// Package tour shows a bookstore at work: who answers, row by row, while the weights of the reviews are edited and requests
// run; and then how the user's own edits come to the proxies.
//
// What runs, and how it is edited, is a Bookstore: on this machine for `make demo`, on a Kubernetes cluster for
// `make demo-cluster`. The only goroutines belong to the load, which ends with Stop.
package tour

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// Bookstore is a mesh of the sample's services that runs.
type Bookstore interface {
	// Shop returns host:port at which customers find the shop.
	Shop() string
	// Routes returns the routes in force as YAML, and Edit puts others in their place. The result is the time from which an edit
	// counts as made.
	Routes() (string, error)
	Edit(ctx context.Context, routes string) (time.Time, error)
	// Settled waits until all that was edited from a time on is in force in every proxy.
	Settled(ctx context.Context, edited time.Time) (testbed.Settled, error)
	// Edited reports whether something was edited since it was asked last, and a time before that. It is asked every 2 ms.
	Edited() (since time.Time, edited bool)
	// Problems are what the control plane has to say about the configuration.
	Problems(ctx context.Context) ([]string, error)
	// Control looks after the control plane. It returns its news as lines for the screen.
	Control(ctx context.Context) (news []string, err error)
	// Rejected returns an error if a proxy has rejected something.
	Rejected(ctx context.Context) error
}

// Tour is one visit of a bookstore.
type Tour struct {
	*Screen
	Bookstore
	// What names the thing that the user edits, such as "file".
	What string
	// Questions are what pilotctl, the program at Pilotctl, can be asked about the bookstore.
	Questions []Question
	Pilotctl  string
	// First and Steps are the weights before the edits, and the weights of each edit; the usual ones if there are no steps. Weigh puts weights into routes;
	// Weights.In if it is nil.
	First Weights
	Steps []Weights
	Weigh func(routes string, w Weights) string

	load   *testbed.Load
	failed int
	first  error // of the failed requests
}

// Question is one that pilotctl answers.
type Question struct {
	Why  string
	Args []string
	Code int // its exit code
}

// Questions are what pilotctl can be asked, given the names of the proxies of the shop and of the catalog, and flags for pilotctl.
func Questions(shop, catalog string, flags ...string) []Question {
	list := []Question{
		{"who has acknowledged what", []string{"proxy-status"}, 0},
		{"problems of the configuration", []string{"problems"}, 0},
		{"why reviews go where they go", []string{"explain", shop, "host", "reviews"}, 0},
		{"why the catalog has none", []string{"explain", catalog, "host", "reviews"}, 1},
	}
	for i := range list {
		list[i].Args = append(list[i].Args, flags...)
	}
	return list
}

const customers = 4 // how many ask at a time

// patience is how long an edit may take on the slowest of machines.
const patience = 20 * time.Second

// Picture draws which service calls which.
func (s *Screen) Picture() {
	s.Line("")
	s.Line("   you ──▶ shop ──┬──▶ catalog")
	s.Line("                  └──▶ reviews v1, v2, v3 ──▶ ratings")
	s.Line("")
}

// Open waits until the shop answers its first customer, and lets more come from then on. alive ends the wait with its error.
func (t *Tour) Open(ctx context.Context, alive func() error) error {
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	var dead error
	err := testbed.Until(ctx, "the shop to open", func(ctx context.Context) error {
		if dead = alive(); dead != nil {
			return nil //nolint:nilerr // no use to wait longer: dead is returned below
		}
		_, err := Visit(ctx, client, t.Shop())
		return err
	})
	if err = errors.Join(dead, err); err != nil {
		return err
	}
	t.load = testbed.StartAsking(ctx, customers, 50, func(ctx context.Context, client *http.Client) (string, error) {
		return Visit(ctx, client, t.Shop())
	})
	return nil
}

// Stop ends the load.
func (t *Tour) Stop() {
	if t.load != nil {
		t.load.Stop()
	}
}

// Visit asks for the shop's page, and says which reviews are in it.
func Visit(ctx context.Context, client *http.Client, shop string) (string, error) {
	servers, err := Page(ctx, client, shop)
	if err != nil {
		return "", err
	}
	for _, by := range servers {
		if version, ok := strings.CutPrefix(by, "reviews-"); ok {
			return version, nil
		}
	}
	return "", errors.New("no reviews on the page")
}

// Page asks for the shop's page, and returns who took part in it.
func Page(ctx context.Context, client *http.Client, shop string) (servers []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+shop+"/", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the shop answered %s", resp.Status)
	}
	return resp.Header.Values("Served-By"), nil
}

// Failures is how many requests of customers have failed so far, and the error of the first one.
func (t *Tour) Failures() (n int, first error) {
	t.count(t.load.Take())
	return t.failed, t.first
}

// Sell waits until customers have got so many pages from now on, and returns how many they got.
func (t *Tour) Sell(ctx context.Context, pages int) (n int, err error) {
	t.count(t.load.Take())
	err = testbed.Until(ctx, "customers to be served", func(context.Context) error {
		x := t.load.Take()
		t.count(x)
		if n += x.Total() - x.Failures; n < pages {
			return fmt.Errorf("%d have been", n)
		}
		return nil
	})
	return n, err
}

// During does something while requests run, and prints how many were answered. One that fails is an error.
func (t *Tour) During(what string, do func() error) error {
	t.count(t.load.Take())
	if err := t.Step(what, do); err != nil {
		return err
	}
	x := t.load.Take()
	t.count(x)
	t.Line(fmt.Sprintf("    %d requests were answered during that, %d failed", x.Total()-x.Failures, x.Failures))
	if x.Failures > 0 {
		return fmt.Errorf("%d requests failed during: %s: %w", x.Failures, what, x.First)
	}
	return nil
}

// Weights are the weights of the versions, in percent.
type Weights [3]int

func (w Weights) String() string { return fmt.Sprintf("%d/%d/%d", w[0], w[1], w[2]) }

var weightLine = regexp.MustCompile(`(?m)^(\s*weight:) \d+$`)

// In puts the weights into routes, as an editor would.
func (w Weights) In(routes string) string {
	i := 0
	return weightLine.ReplaceAllStringFunc(routes, func(line string) string {
		line = weightLine.ReplaceAllString(line, fmt.Sprintf("$1 %d", w[i%len(w)]))
		i++
		return line
	})
}

// Go edits the weights step by step while requests run, and prints a row for each.
func (t *Tour) Go(ctx context.Context) error {
	first, steps := t.First, t.Steps
	if len(steps) == 0 {
		first, steps = Weights{100}, []Weights{{90, 10}, {50, 50}, {0, 50, 50}, {0, 0, 100}, {34, 33, 33}}
	}
	t.header(t.What)
	if err := t.Observe(ctx, first, ""); err != nil {
		return err
	}
	for _, w := range steps {
		settled, err := t.change(ctx, w)
		if err != nil {
			return err
		}
		if err := t.Observe(ctx, w, acknowledged(settled)); err != nil {
			return err
		}
	}
	return nil
}

// change edits the weights and waits until they are in force.
func (t *Tour) change(ctx context.Context, w Weights) (testbed.Settled, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	routes, err := t.Routes()
	if err != nil {
		return testbed.Settled{}, err
	}
	weigh := t.Weigh
	if weigh == nil {
		weigh = func(routes string, w Weights) string { return w.In(routes) }
	}
	at, err := t.Edit(ctx, weigh(routes, w))
	if err != nil {
		return testbed.Settled{}, err
	}
	return t.Settled(ctx, at)
}

func acknowledged(x testbed.Settled) string {
	return fmt.Sprintf("%.1f ms, by %d of %d proxies", float64(x.Took.Microseconds())/1000, x.Told, x.Proxies)
}

// Observe counts answers for a while, shows them as they come, and compares them with the weights.
func (t *Tour) Observe(ctx context.Context, w Weights, took string) error {
	t.count(t.load.Take()) // answers before the edit was acknowledged belong to no row
	all := testbed.Tally{Answers: map[string]int{}}
	for range 10 {
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		add(&all, t.load.Take())
		t.live(t.row(w.String(), all, took))
	}
	t.count(all)
	t.Line(t.row(w.String(), all, took))
	for i, v := range versions() {
		if !within(all.Answers[v], all.Total()-all.Failures, w[i]) {
			return fmt.Errorf("the weights are %s, but of %d answers %s gave %d", w, all.Total(), v, all.Answers[v])
		}
	}
	return nil
}

// within reports whether n of all fit a share in percent: within five standard deviations of what chance allows, and the
// requests that were under way when the edit was acknowledged.
func within(n, all, percent int) bool {
	p := float64(percent) / 100
	return all > 0 && math.Abs(float64(n)-p*float64(all)) <= customers+5*math.Sqrt(p*(1-p)*float64(all))
}

func add(sum *testbed.Tally, t testbed.Tally) {
	for who, n := range t.Answers {
		sum.Answers[who] += n
	}
	if sum.Failures += t.Failures; sum.First == nil {
		sum.First = t.First
	}
}

func (t *Tour) count(x testbed.Tally) {
	if t.failed += x.Failures; t.first == nil {
		t.first = x.First
	}
}

// Verdict ends the bounded run.
func (t *Tour) Verdict(ctx context.Context) error {
	t.count(t.load.Stop())
	if t.failed > 0 {
		return fmt.Errorf("%d requests failed, the first at %w", t.failed, t.first)
	}
	if err := t.Rejected(ctx); err != nil {
		return err
	}
	for _, q := range t.Questions {
		cmd := exec.CommandContext(ctx, t.Pilotctl, q.Args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != q.Code {
			return fmt.Errorf("pilotctl %s: %w, want exit code %d\n%s", strings.Join(q.Args, " "), err, q.Code, out)
		}
	}
	if problems, err := t.Problems(ctx); err != nil || len(problems) > 0 {
		return fmt.Errorf("the sample has problems: %q, %w", problems, err)
	}
	t.Line("\n  " + t.In(Green, "no request failed, nothing was rejected"))
	return nil
}

// pause waits for a time, or for the user to stop everything.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
