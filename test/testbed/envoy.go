package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/kit/process"
)

// Envoy is a real Envoy that gets everything from a control plane but its bootstrap.
type Envoy struct {
	Node    Node
	process *process.Process
	admin   *http.Client
	socket  string // directory of the admin socket
}

// StartEnvoy runs an Envoy as node, with its files below dir, and waits until it is live: it has all the clusters and
// listeners that the control plane had for it at first.
func StartEnvoy(ctx context.Context, binary, dir string, node Node) (*Envoy, error) {
	// Of its own because a socket's path must be short, and test directories are not.
	sockets, err := os.MkdirTemp("", "envoy-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(sockets, "admin")
	e := &Envoy{Node: node, socket: sockets, admin: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
	bootstrap, err := json.MarshalIndent(node.bootstrap(socket), "", "  ")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, node.Name+".json")
	if err := os.WriteFile(path, bootstrap, 0o600); err != nil {
		return nil, err
	}
	e.process, err = start(nil, "envoy-"+node.Name, dir, binary, "-c", path, "--concurrency", "1", "--disable-hot-restart",
		"--drain-time-s", "1", "--drain-strategy", "immediate", "-l", "warning")
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, e.process, "Envoy "+node.Name+" to be live", e.live); err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

// PID is the process of the Envoy.
func (e *Envoy) PID() int { return e.process.PID() }

// Stop ends the Envoy.
func (e *Envoy) Stop() {
	if e.process != nil {
		e.process.Kill()
	}
	e.admin.CloseIdleConnections()
	os.RemoveAll(e.socket)
}

// Pause suspends the Envoy: its connections stay, and nothing is read from them until Resume.
func (e *Envoy) Pause() error { return e.process.Signal(syscall.SIGSTOP) }

// Resume resumes a paused Envoy.
func (e *Envoy) Resume() error { return e.process.Signal(syscall.SIGCONT) }

// Alive returns an error with the end of the log if the Envoy has ended.
func (e *Envoy) Alive() error { return e.process.Alive() }

// Log is the end of what the Envoy wrote.
func (e *Envoy) Log() string { return e.process.Tail() }

// Admin reads a page of the Envoy's admin interface.
func (e *Envoy) Admin(ctx context.Context, path string) (string, error) {
	return get(ctx, e.admin, "http://admin"+path)
}

func (e *Envoy) live(ctx context.Context) error {
	_, err := e.Admin(ctx, "/ready")
	return err
}

// Stats returns the counters and gauges whose names match the regular expression.
func (e *Envoy) Stats(ctx context.Context, match string) (map[string]int64, error) {
	page, err := e.Admin(ctx, "/stats?filter="+url.QueryEscape(match))
	if err != nil {
		return nil, err
	}
	stats := map[string]int64{}
	for line := range strings.Lines(page) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if v, err := strconv.ParseInt(value, 10, 64); ok && err == nil { // text readouts are no numbers
			stats[name] = v
		}
	}
	return stats, nil
}

// Sum adds up the counters and gauges whose names match.
func (e *Envoy) Sum(ctx context.Context, match string) (int64, error) {
	stats, err := e.Stats(ctx, match)
	var sum int64
	for _, v := range stats {
		sum += v
	}
	return sum, err
}

// Rejected returns an error that names what the Envoy has rejected since it started, and why if it still says so.
func (e *Envoy) Rejected(ctx context.Context) error {
	stats, err := e.Stats(ctx, `\.update_rejected$`)
	if err != nil {
		return err
	}
	if len(stats) == 0 {
		return errors.New("Envoy has no update_rejected counter: nothing was subscribed")
	}
	for name, n := range stats {
		if n != 0 {
			dump, _ := e.Admin(ctx, "/config_dump?resource=error_state")
			return fmt.Errorf("Envoy %s: %s = %d\n%s\n%s", e.Node.Name, name, n, dump, e.Log())
		}
	}
	return nil
}

// Connected reports by its error whether the Envoy has a stream to the control plane.
func (e *Envoy) Connected(ctx context.Context) error {
	n, err := e.Sum(ctx, `^control_plane\.connected_state$`)
	if err == nil && n != 1 {
		err = fmt.Errorf("control_plane.connected_state is %d", n)
	}
	return err
}

// Clusters names the clusters that came from the control plane, in order.
func (e *Envoy) Clusters(ctx context.Context) ([]string, error) {
	page, err := e.Admin(ctx, "/config_dump?resource=dynamic_active_clusters&mask=cluster.name")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range regexp.MustCompile(`"name": ("[^\n]*")`).FindAllStringSubmatch(page, -1) {
		name, err := strconv.Unquote(m[1])
		if err != nil {
			return nil, fmt.Errorf("config_dump of clusters: %w", err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Route is the present content of a route configuration, as JSON.
func (e *Envoy) Route(ctx context.Context, name string) (string, error) {
	return e.Admin(ctx, "/config_dump?resource=dynamic_route_configs&name_regex="+url.QueryEscape("^"+regexp.QuoteMeta(name)+"$"))
}

// AwaitUpdate waits until the counter matched by match (…update_success) has grown beyond before, and returns how long
// after begin that was seen.
func (e *Envoy) AwaitUpdate(ctx context.Context, match string, before int64, begin time.Time) (time.Duration, error) {
	var took time.Duration
	err := Until(ctx, e.Node.Name+" to accept an update of "+match, func(ctx context.Context) error {
		n, err := e.Sum(ctx, match)
		if err == nil && n <= before {
			err = fmt.Errorf("still at %d", n)
		}
		took = time.Since(begin)
		return err
	})
	return took, err
}
