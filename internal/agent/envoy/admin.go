package envoy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxAnswer limits how much of a response is read, in bytes. Normal responses have a few lines.
const maxAnswer = 1 << 20

// Admin is a client of Envoy's admin interface.
type Admin struct {
	address string
	client  *http.Client
	own     *regexp.Regexp
	// Gateway makes Drain ask the clients of all listeners, because listeners of a gateway count as outbound ones.
	Gateway bool
	// expected is the process that is asked whether it is ready.
	expected atomic.Pointer[expected]
}

// expected is the process from which answers are expected.
type expected struct {
	epoch int
	// ready is set when it has been ready once.
	ready atomic.Bool
}

// Expect records that a process was started. Ready returns nil only if a process of its epoch answers: during a hot restart the parent answers
// until its child does.
func (a *Admin) Expect(epoch int) { a.expected.Store(&expected{epoch: epoch}) }

// NewAdmin returns a client of the admin interface at an address. Connections does not count connections of listeners with the given
// stat prefixes, which belong to Envoy itself.
func NewAdmin(address string, own ...string) *Admin {
	ignored := []string{`admin`, `.*\.worker_\d+`, `.*\.main_thread`} // the last two are parts of sums that are counted elsewhere
	for _, o := range own {
		ignored = append(ignored, regexp.QuoteMeta(o))
	}
	a := &Admin{
		address: address,
		// Connections are not kept: Envoy restarts, and requests are rare.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}},
		own:    regexp.MustCompile(`^listener\.(` + strings.Join(ignored, "|") + `)\.`),
	}
	a.Expect(0)
	return a
}

// Do sends a request and returns the response, whose body the caller closes. The path may contain a query.
func (a *Admin) Do(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.address+"/"+strings.TrimPrefix(path, "/"), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("Envoy's admin interface: %w", err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("Envoy's admin interface: %w", err)
	}
	return resp, nil
}

// text returns the body of a response, and an error unless its status is 200.
func (a *Admin) text(ctx context.Context, method, path string) (string, error) {
	resp, err := a.Do(ctx, method, path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("Envoy's admin interface: %s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return string(body), fmt.Errorf("Envoy's admin interface: %s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// Statistics that show whether Envoy has received configuration from the control plane.
const (
	clustersAccepted  = "cluster_manager.cds.update_success"
	clustersRejected  = "cluster_manager.cds.update_rejected"
	listenersAccepted = "listener_manager.lds.update_success"
	listenersRejected = "listener_manager.lds.update_rejected"
	workersStarted    = "listener_manager.workers_started"
	serverState       = "server.state"
	connected         = "control_plane.connected_state"
	presentEpoch      = "server.hot_restart_epoch"
	readinessStats    = `^(server\.(state|hot_restart_epoch)|control_plane\.connected_state|cluster_manager\.cds\.update_(success|rejected)|listener_manager\.(lds\.update_(success|rejected)|workers_started))$`
)

// ErrDisconnected reports that Envoy has no connection to the control plane.
var ErrDisconnected = errors.New("Envoy has no connection to the control plane")

// Ready returns nil if Envoy serves the configuration of the control plane. Otherwise the error says what Envoy waits for. Envoy looks at
// all its statistics to find a few, so a process that has been ready once is asked for its state alone.
func (a *Admin) Ready(ctx context.Context) error {
	process := a.expected.Load()
	if process.ready.Load() {
		return a.live(ctx)
	}
	stats, err := a.stats(ctx, readinessStats)
	if err != nil {
		return err
	}
	switch {
	case stats[presentEpoch] != process.epoch:
		return otherEpoch(process.epoch, stats[presentEpoch])
	case stats[clustersAccepted] == 0:
		return waiting("clusters", stats[clustersRejected], stats[connected])
	case stats[listenersAccepted] == 0:
		return waiting("listeners", stats[listenersRejected], stats[connected])
	case stats[serverState] != 0:
		return fmt.Errorf("Envoy is %s", stateName(stats[serverState]))
	case stats[workersStarted] == 0:
		return errors.New("Envoy's workers have not started")
	}
	process.ready.Store(true)
	return nil
}

// live returns nil if Envoy is neither starting nor draining.
func (a *Admin) live(ctx context.Context) error {
	state, err := a.state(ctx)
	if err == nil && state != "LIVE" {
		err = fmt.Errorf("Envoy is in the state %s", state)
	}
	return err
}

// state returns the state of the process, such as LIVE, without looking at statistics.
func (a *Admin) state(ctx context.Context) (string, error) {
	resp, err := a.Do(ctx, http.MethodGet, "/ready")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	state, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("Envoy's admin interface: GET /ready: %w", err)
	}
	return strings.TrimSpace(string(state)), nil
}

func otherEpoch(expected, answers int) error {
	return fmt.Errorf("the Envoy of epoch %d does not answer yet, but the Envoy of epoch %d does", expected, answers)
}

func waiting(what string, rejected, streams int) error {
	if rejected > 0 {
		return fmt.Errorf("Envoy has rejected all %s from the control plane (%d times); its log says why", what, rejected)
	}
	if streams == 0 {
		return ErrDisconnected
	}
	return fmt.Errorf("Envoy has not received any %s from the control plane yet", what)
}

// stateName returns the meaning of a value of the gauge server.state.
func stateName(state int) string {
	names := [...]string{"live", "draining", "still getting its first configuration", "initializing"}
	if state < 0 || state >= len(names) {
		return "in state " + strconv.Itoa(state)
	}
	return names[state]
}

// Drain makes Envoy ask the clients of inbound listeners, or of all if it is a gateway, to use other endpoints. When Envoy's drain time is over it stops
// listening, unless goOn is true. A second call has no effect.
func (a *Admin) Drain(ctx context.Context, goOn bool) error {
	path := "/drain_listeners?graceful"
	if !a.Gateway {
		path += "&inboundonly"
	}
	if goOn {
		path += "&skip_exit"
	}
	_, err := a.text(ctx, http.MethodPost, path)
	return err
}

// Connections returns the number of open downstream connections.
func (a *Admin) Connections(ctx context.Context) (int, error) {
	stats, err := a.stats(ctx, `^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return 0, err
	}
	return a.open(stats), nil
}

// open returns the number of open connections from statistics.
func (a *Admin) open(stats map[string]int) (sum int) {
	for name, n := range stats {
		if strings.HasSuffix(name, ".downstream_cx_active") && !a.own.MatchString(name) {
			sum += n
		}
	}
	return sum
}

// stats returns the counters and gauges whose names match and that have been used.
func (a *Admin) stats(ctx context.Context, match string) (map[string]int, error) {
	return a.ask(ctx, "/stats?usedonly&filter="+url.QueryEscape(match))
}

// gauges returns the gauges whose names match and that have been used.
func (a *Admin) gauges(ctx context.Context, match string) (map[string]int, error) {
	return a.ask(ctx, "/stats?type=Gauges&usedonly&filter="+url.QueryEscape(match))
}

// ask reads a page of statistics.
func (a *Admin) ask(ctx context.Context, path string) (map[string]int, error) {
	page, err := a.text(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	stats := map[string]int{}
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), ": ")
		if n, err := strconv.Atoi(value); ok && err == nil {
			stats[name] = n
		}
	}
	return stats, nil
}
