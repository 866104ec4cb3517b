// Command prometheus answers queries in PromQL about scrapes, with the parser of metrics and the query engine of Prometheus. Tests ask it the
// queries of dashboards. It keeps the series of one run in memory, as lists of samples.
//
// It reads one Input as JSON from standard input, and writes one Answer per query, as a JSON array, to standard output. The program is a module
// of its own, so that the dependencies of Prometheus are in no other module.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Input is what the program reads.
type Input struct {
	// Scrapes are pages of metrics, in the order of their times.
	Scrapes []Scrape `json:"scrapes"`
	// At is the time of the queries, in seconds.
	At int64 `json:"at"`
	// Queries are expressions in PromQL.
	Queries []string `json:"queries"`
}

// Scrape is one page of metrics of one target.
type Scrape struct {
	// At is the time of the scrape, in seconds.
	At int64 `json:"at"`
	// Type is the Content-Type of the page.
	Type string `json:"type"`
	Text string `json:"text"`
	// Target are the labels of the target. A label that a metric has under the same name becomes exported_NAME, as without honor_labels.
	Target map[string]string `json:"target"`
}

// Answer is the result of a query: an error, or the series and their values.
type Answer struct {
	Error  string  `json:"error,omitempty"`
	Series []Value `json:"series"`
}

// Value is one series of a result. The value is a text, because JSON has no NaN.
type Value struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"`
}

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "prometheus:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, r io.Reader, w io.Writer) error {
	var in Input
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return fmt.Errorf("reading the input: %w", err)
	}
	s := storage{}
	for _, scrape := range in.Scrapes {
		if err := s.add(scrape); err != nil {
			return fmt.Errorf("reading the metrics of %v at %d: %w", scrape.Target, scrape.At, err)
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		Parser: parser.NewParser(parser.Options{}),
	})
	answers := make([]Answer, len(in.Queries))
	for i, query := range in.Queries {
		answers[i] = ask(ctx, engine, s, query, time.Unix(in.At, 0))
	}
	return json.NewEncoder(w).Encode(answers)
}

func ask(ctx context.Context, engine *promql.Engine, s storage, text string, at time.Time) (a Answer) {
	query, err := engine.NewInstantQuery(ctx, s, nil, text, at)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	defer query.Close()
	result := query.Exec(ctx)
	vector, err := result.Vector()
	if err = errors.Join(result.Err, err); err != nil {
		return Answer{Error: err.Error()}
	}
	for _, sample := range vector {
		a.Series = append(a.Series, Value{Labels: sample.Metric.Map(), Value: fmt.Sprint(sample.F)})
	}
	return a
}

// add stores the samples of a scrape.
func (s storage) add(scrape Scrape) error {
	p, err := textparse.New([]byte(scrape.Text), scrape.Type, nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var has labels.Labels
		p.Labels(&has)
		b := labels.NewBuilder(has)
		for name, value := range scrape.Target {
			if has.Has(name) {
				b.Set("exported_"+name, has.Get(name))
			}
			b.Set(name, value)
		}
		_, at, value := p.Series()
		moment := scrape.At * 1000
		if at != nil {
			moment = *at
		}
		s.put(b.Labels(), sample{moment, value})
	}
}
