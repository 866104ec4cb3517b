// Package scrape answers a scrape with the metrics of Envoy, of the application and of the agent in one document, so that
// Prometheus needs only one port of a workload.
//
// The answer is OpenMetrics if the client accepts that and a target of the application serves it; otherwise it is in the Prometheus
// text format. Metrics in the other format are translated line by line.
//
// Invariants: a target that fails, hangs or answers garbage hides nothing of the others, and its metric
// pilot_agent_scrape_target_up is 0. The answer can be parsed, whatever the targets answer. The agent keeps one line and the
// names of the metrics in memory, never an answer. Size and time of each target are limited.
//
// Goroutines: one request per target, which end with the scrape and are waited for.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"
)

// Limits of scrapes.
const (
	defaultBudget = 10 * time.Second // Prometheus' default
	maxBudget     = 2 * time.Minute
	minBudget     = 100 * time.Millisecond
	maxScrapes    = 8
	maxRedirects  = 3
	maxHeader     = 64 << 10
	ownNames      = 1000
)

// timeoutHeader is how long Prometheus waits, in seconds.
const timeoutHeader = "X-Prometheus-Scrape-Timeout-Seconds"

// Options are the sources of a scrape.
type Options struct {
	// Envoy sends a request to Envoy's admin interface.
	Envoy func(ctx context.Context, method, path string) (*http.Response, error)
	// Targets are the targets of the application. They are called over loopback.
	Targets []Target
	// Own returns the agent's metrics in the Prometheus text format; nil for an answer without them, and without the ones about scrapes.
	Own func() string
	Log *slog.Logger
}

// Handler answers scrapes.
func Handler(o Options) http.Handler {
	h := &handler{Options: o, running: make(chan struct{}, maxScrapes)}
	h.client = &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
	}}
	return h
}

type handler struct {
	Options
	client  *http.Client
	running chan struct{}
	scrapes atomic.Uint64
	// failures counts failures of Envoy and of the application.
	failures [2]atomic.Uint64
	losses   losses
}

// Indexes of failures.
const (
	ofEnvoy = iota
	ofApplication
)

// source is the answer of one target to one scrape.
type source struct {
	name string
	kind int
	open func(context.Context) (*http.Response, error)

	cancel context.CancelFunc
	resp   *http.Response
	began  time.Time
	took   time.Duration
	report report
}

// ServeHTTP answers one scrape.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are running already", maxScrapes), http.StatusServiceUnavailable)
		return
	}
	h.scrapes.Add(1)
	began := time.Now()
	limit := budget(r)
	control := http.NewResponseController(w)
	h.log(control.SetWriteDeadline(began.Add(limit)))
	defer func() { // the connection may be used again
		h.log(control.Flush())
		h.log(control.SetWriteDeadline(time.Time{}))
	}()
	ctx, cancel := context.WithDeadline(r.Context(), began.Add(limit*9/10))
	defer cancel()
	sources := h.sources(r)
	s := &scrape{ctx: ctx, end: began.Add(limit * 9 / 10), sources: sources, opened: open(ctx, sources)}
	openMetrics := len(h.Targets) > 0 && accepts(r) && s.anyOpenMetrics(limit/2)
	format := expfmt.FmtText
	if openMetrics {
		format = expfmt.FmtOpenMetrics_1_0_0
	}
	w.Header().Set("Content-Type", string(format))
	m := newMerger(w, openMetrics)
	s.stream(m)
	cancel()
	s.close()
	for _, src := range sources {
		if src.report.err != nil && r.Context().Err() == nil {
			h.failures[src.kind].Add(1)
			h.Log.Debug("scraping", "target", src.name, "error", src.report.err)
		}
	}
	if h.Own == nil {
		h.log(m.finish())
		return
	}
	m.names += ownNames
	m.add(strings.NewReader(h.Own()+h.metrics(sources)), false)
	h.log(m.finish())
}

func (h *handler) log(err error) {
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		h.Log.Debug("answering a scrape", "error", err)
	}
}

// budget is how long a scrape may take.
func budget(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get(timeoutHeader), 64)
	if err != nil || !(seconds > 0) {
		return defaultBudget
	}
	return max(minBudget, time.Duration(min(seconds, maxBudget.Seconds())*float64(time.Second)))
}

// accepts reports whether the client accepts OpenMetrics, and does not prefer another format.
func accepts(r *http.Request) bool {
	return expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...).FormatType() == expfmt.TypeOpenMetrics
}

// sources are Envoy and the targets of the application.
func (h *handler) sources(r *http.Request) []*source {
	path := "/stats/prometheus"
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery // such as Envoy's usedonly
	}
	list := []*source{{name: "envoy", kind: ofEnvoy, open: func(ctx context.Context) (*http.Response, error) {
		return h.Envoy(ctx, http.MethodGet, path)
	}}}
	header := http.Header{"Accept": {string(expfmt.FmtText)}}
	if accepts(r) {
		header.Set("Accept", "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
	}
	for _, name := range []string{"User-Agent", timeoutHeader} {
		if v := r.Header.Get(name); v != "" {
			header.Set(name, v)
		}
	}
	for _, t := range h.Targets {
		list = append(list, &source{name: t.String(), kind: ofApplication, open: func(ctx context.Context) (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+t.String(), nil)
			if err != nil {
				return nil, err
			}
			req.Header = header.Clone()
			return h.client.Do(req)
		}})
	}
	return list
}

// sameHost follows redirects to the application only.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// dial connects to a port of this host, with the first version of IP that has a listener.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if other, otherErr := d.DialContext(ctx, network, net.JoinHostPort("::1", port)); otherErr == nil {
			return other, nil
		}
	}
	return conn, err
}

// isOpenMetrics reports whether an answer is in that format.
func isOpenMetrics(resp *http.Response) bool {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && t == expfmt.OpenMetricsType
}

// open sends the requests of all sources at once. The channel gets each source when it has an answer or an error.
func open(ctx context.Context, sources []*source) <-chan *source {
	opened := make(chan *source, len(sources))
	for _, src := range sources {
		var own context.Context
		own, src.cancel = context.WithCancel(ctx)
		src.began = time.Now()
		go func() {
			resp, err := src.open(own)
			switch {
			case err != nil:
				src.report.err = err
			case resp.StatusCode != http.StatusOK:
				src.report.err = errors.Join(fmt.Errorf("it answered %s", resp.Status), resp.Body.Close())
			default:
				src.resp = resp
			}
			opened <- src
		}()
	}
	return opened
}

// scrape is the state of one scrape. A source belongs to the goroutine that opens it until it is in opened.
type scrape struct {
	ctx     context.Context
	end     time.Time
	sources []*source
	opened  <-chan *source
	waiting []*source // sources with an answer that was not read yet
	count   int       // sources received from opened
}

// next waits for the next source that has been opened. It returns false when there is none, or when time is up.
func (s *scrape) next(up <-chan time.Time) bool {
	if s.count == len(s.sources) {
		return false
	}
	select {
	case src := <-s.opened:
		s.count++
		if src.kind == ofEnvoy {
			s.waiting = append([]*source{src}, s.waiting...)
		} else {
			s.waiting = append(s.waiting, src)
		}
		return true
	case <-up:
		return false
	case <-s.ctx.Done():
		return false
	}
}

// anyOpenMetrics waits for the beginnings of the answers, for a limited time, and reports whether the application has one in
// OpenMetrics.
func (s *scrape) anyOpenMetrics(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for s.next(timer.C) {
		for _, src := range s.waiting {
			if src.kind == ofApplication && src.resp != nil && isOpenMetrics(src.resp) {
				return true
			}
		}
	}
	return false
}

// stream writes the answers one after the other, in the order in which they come. Each has its share of the time that is left.
func (s *scrape) stream(m *merger) {
	left := len(s.sources)
	for {
		if len(s.waiting) == 0 && !s.next(nil) {
			return
		}
		src := s.waiting[0]
		s.waiting = s.waiting[1:]
		if src.resp != nil {
			m.limit = maxBytes
			if src.kind == ofEnvoy {
				m.limit = maxEnvoy
			}
			timer := time.AfterFunc(time.Until(s.end)/time.Duration(left), src.cancel)
			src.report = m.add(src.resp.Body, isOpenMetrics(src.resp))
			if !timer.Stop() && src.report.err != nil {
				src.report.err = fmt.Errorf("it took too long: %w", src.report.err)
			}
			s.finish(src)
		}
		src.took = time.Since(src.began)
		left--
		if errors.Is(src.report.err, errWriting) {
			return // the client has gone
		}
	}
}

// finish closes the answer of a source.
func (s *scrape) finish(src *source) {
	src.cancel()
	if err := src.resp.Body.Close(); err != nil && src.report.err == nil && !errors.Is(err, context.Canceled) {
		src.report.err = err
	}
	src.resp = nil
}

// close ends the remaining sources, after the context has been cancelled. Sources that have no answer yet have failed.
func (s *scrape) close() {
	for ; s.count < len(s.sources); s.count++ {
		s.waiting = append(s.waiting, <-s.opened)
	}
	for _, src := range s.waiting {
		if src.resp != nil {
			s.finish(src)
		}
		src.took = time.Since(src.began)
		if src.report.err == nil || errors.Is(src.report.err, context.Canceled) || errors.Is(src.report.err, context.DeadlineExceeded) {
			src.report.err = errTooSlow
		}
	}
	for _, src := range s.sources {
		src.cancel()
	}
}

var errTooSlow = errors.New("it did not answer in time")

// metrics returns metrics about the scrape of each target.
func (h *handler) metrics(sources []*source) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# HELP istio_agent_scrapes_total Scrapes that the agent has answered.\n# TYPE istio_agent_scrapes_total counter\nistio_agent_scrapes_total %d\n", h.scrapes.Load())
	out.WriteString("# HELP istio_agent_scrape_failures_total Targets that could not be scraped, or not completely.\n# TYPE istio_agent_scrape_failures_total counter\n")
	for i, kind := range []string{"envoy", "application"} {
		fmt.Fprintf(&out, "istio_agent_scrape_failures_total{type=%q} %d\n", kind, h.failures[i].Load())
	}
	each := func(name, text string, value func(*source) any) {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s gauge\n", name, text, name)
		for _, src := range sources {
			fmt.Fprintf(&out, "%s{target=\"%s\"} %v\n", name, quoteValue(src.name), value(src))
		}
	}
	each("pilot_agent_scrape_target_up", "1 if this target was scraped completely this time.", func(s *source) any {
		if s.report.err != nil {
			return 0
		}
		return 1
	})
	each("pilot_agent_scrape_target_samples", "Samples of this target.", func(s *source) any { return s.report.samples })
	each("pilot_agent_scrape_target_bytes", "Size of the answer of this target, in bytes.", func(s *source) any { return s.report.bytes })
	each("pilot_agent_scrape_target_invalid_lines", "Lines of this target that were left out because they are not metrics.", func(s *source) any { return s.report.invalid })
	each("pilot_agent_scrape_target_seconds", "How long this target took.", func(s *source) any { return s.took.Seconds() })
	h.lost(&out, sources)
	return out.String()
}

// quoteValue escapes the value of a label.
func quoteValue(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(text)
}
