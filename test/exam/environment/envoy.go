package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/observation"
)

// relay passes Envoy's xDS connection, a unix socket in any namespace, on to the control plane's TCP address.
type relay struct {
	l     net.Listener
	to    string
	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(socket, to string) (*relay, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		return nil, err
	}
	r := &relay{l: l, to: to}
	go r.accept()
	return r, nil
}

func (r *relay) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return // closed
		}
		go r.serve(c)
	}
}

func (r *relay) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer up.Close()
	r.mu.Lock()
	r.conns = append(r.conns, c, up)
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(up, c) // it ends when either side does
		up.Close()
	}()
	_, _ = io.Copy(c, up)
}

func (r *relay) close() {
	r.l.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

// proxy is one running Envoy.
type proxy struct {
	env   *environment
	dir   string
	log   string
	relay *relay
	admin *http.Client
}

func startEnvoy(env *environment, c *casefile.Case, dir, grpcAddr string, set *Settings, sotw bool) (*proxy, error) {
	p := &proxy{env: env, dir: dir, log: filepath.Join(dir, "envoy.log")}
	s := sockets{xds: filepath.Join(dir, "xds.sock"), sds: filepath.Join(env.dir, "sds.sock"), admin: filepath.Join(dir, "admin.sock")}
	if err := os.Chmod(dir, 0o777); err != nil { // Envoy's user makes its admin socket here
		return nil, err
	}
	b, err := bootstrap(c, s, sotw)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "bootstrap.json")
	if err := os.WriteFile(conf, b, 0o644); err != nil {
		return nil, err
	}
	if p.relay, err = newRelay(s.xds, grpcAddr); err != nil {
		return nil, err
	}
	p.admin = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.admin)
	}}}
	level := "warn"
	if set.EnvoyLog != "" {
		level = set.EnvoyLog
	}
	start := EnvoyStart{Path: set.Envoy, Log: p.log, Dir: dir, UID: envoyUID, Args: []string{"-c", conf, "--concurrency", "1", "--disable-hot-restart", "-l", level,
		"--log-format", "%l\t%n\t%v", "--drain-time-s", "1", "--parent-shutdown-time-s", "2"}}
	if err := env.wl.call("StartEnvoy", &start, nil); err != nil {
		p.relay.close()
		return nil, err
	}
	return p, nil
}

func (p *proxy) stop() {
	_ = p.env.wl.call("StopEnvoy", 0, nil) // with its namespace it goes in any case
	p.relay.close()
	p.admin.CloseIdleConnections()
}

func (p *proxy) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := p.admin.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// alive fails once Envoy has ended.
func (p *proxy) alive() error {
	var died string
	if err := p.env.wl.call("EnvoyExit", 0, &died); err != nil {
		return err
	}
	if died != "" {
		return fmt.Errorf("envoy ended: %s\n%s", died, tail(p.log, 10))
	}
	return nil
}

// dump saves what Envoy says about itself beside its log.
func (p *proxy) dump(ctx context.Context) {
	for name, path := range map[string]string{"config_dump.json": "/config_dump?include_eds", "stats.txt": "/stats?usedonly", "init_dump.json": "/init_dump", "clusters.txt": "/clusters"} {
		text, err := p.get(ctx, path)
		if err != nil {
			text = err.Error()
		}
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "exam: keeping", name+":", err)
		}
	}
}

const progressFilter = `(update_(success|rejected|attempt|failure)|version_text|version|warming_clusters|server\.state|server\.live|total_(listeners|filter_chains).*|listener_(added|modified|create_success|create_failure)|active_clusters|cluster_(added|modified)|membership_total|init_fetch_timeout)$`

// settled waits until Envoy has everything: it is live, nothing warms, and no xDS counter moved for `quiet`. It returns false when something is
// missing and no counter moved for `patience`; the case then runs anyway and the observation names what still warmed.
func (p *proxy) settled(ctx context.Context, quiet, patience time.Duration) (bool, error) {
	var last string
	since, stuck := time.Now(), false
	err := poll(ctx, 20*time.Millisecond, startLimit, func() (bool, error) {
		if err := p.alive(); err != nil {
			return false, err
		}
		s, err := p.get(ctx, "/stats?filter="+urlEscape(progressFilter))
		if err != nil {
			s = "" // its admin interface is not there yet
		}
		if s != last || s == "" {
			last, since = s, time.Now()
		}
		if still := time.Since(since); still < quiet || !isSettled(s) {
			stuck = still > patience
			return stuck, nil
		}
		// A listener may be live for the server and still wait for a route table or a secret.
		dump, err := p.get(ctx, "/init_dump")
		if err == nil && !strings.Contains(dump, "target_names") {
			return true, nil
		}
		stuck = time.Since(since) > patience
		return stuck, nil
	})
	if errors.Is(err, errTime) {
		return false, nil
	}
	return err == nil && !stuck, err
}

// startLimit bounds the wait for an Envoy, which may be long on a busy machine.
const startLimit = time.Minute

func isSettled(stats string) bool {
	v := map[string]string{}
	for _, l := range strings.Split(stats, "\n") {
		if k, x, ok := strings.Cut(l, ": "); ok {
			v[k] = x
		}
	}
	got := func(prefix string) bool {
		return v[prefix+".update_success"] != "0" || v[prefix+".update_rejected"] != "0"
	}
	return v["server.state"] == "0" && v["cluster_manager.warming_clusters"] == "0" && v["listener_manager.total_listeners_warming"] == "0" &&
		got("cluster_manager.cds") && got("listener_manager.lds")
}

func urlEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

var rejectedLine = regexp.MustCompile(`(?:gRPC|[dD]elta) config for (?:type\.googleapis\.com/)?([\w.]+) rejected: (.*)`)

// state is what the observation says about xDS.
func (p *proxy) state(ctx context.Context) (rejected []observation.Rejection, warming []string, err error) {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return nil, nil, err
	}
	known := map[observation.Rejection]bool{}
	add := func(typ, reason string) {
		r := observation.Rejection{Type: typ[strings.LastIndex(typ, ".")+1:], Reason: strings.TrimSpace(reason)}
		if !known[r] {
			known[r] = true
			rejected = append(rejected, r)
		}
	}
	for _, m := range rejectedLine.FindAllStringSubmatch(string(b), -1) {
		add(m[1], m[2])
	}
	if len(rejected) == 0 {
		// in case the log's wording changed: the counters
		s, err := p.get(ctx, "/stats?usedonly&filter="+urlEscape(`update_rejected$`))
		if err != nil {
			return nil, nil, err
		}
		for _, l := range strings.Split(s, "\n") {
			if k, n, ok := strings.Cut(l, ": "); ok && n != "0" {
				add(k, n+" rejected")
			}
		}
	}
	sort.Slice(rejected, func(a, b int) bool { return rejected[a].Type+rejected[a].Reason < rejected[b].Type+rejected[b].Reason })
	warming, err = p.warming(ctx)
	return rejected, warming, err
}

// warming names the listeners and clusters Envoy has but does not use yet.
func (p *proxy) warming(ctx context.Context) ([]string, error) {
	var out []string
	for _, q := range []struct{ resource, kind string }{{"dynamic_listeners", "listener"}, {"dynamic_warming_clusters", "cluster"}, {"dynamic_warming_secrets", "secret"}} {
		s, err := p.get(ctx, "/config_dump?resource="+q.resource)
		if err != nil {
			return nil, err
		}
		var dump struct {
			Configs []struct {
				Name         string
				WarmingState *struct{} `json:"warming_state"`
				Cluster      struct{ Name string }
			}
		}
		if json.Unmarshal([]byte(s), &dump) != nil {
			continue // the answer is an error text when there is none
		}
		for _, d := range dump.Configs {
			if q.kind != "listener" {
				out = append(out, q.kind+" "+d.Name+d.Cluster.Name)
			} else if d.WarmingState != nil {
				out = append(out, q.kind+" "+d.Name)
			}
		}
	}
	sort.Strings(out)
	return out, nil
}

func tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	l := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}
