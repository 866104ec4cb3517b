package main

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// storage holds the samples of series, by their labels as text. It implements the interfaces that the engine reads from.
type storage map[string]*series

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// put adds a sample to a series. Samples come in the order of their times.
func (s storage) put(of labels.Labels, one sample) {
	key := of.String()
	if s[key] == nil {
		s[key] = &series{labels: of}
	}
	s[key].samples = append(s[key].samples, one)
}

// Querier implements storage.Queryable. Every query reads all samples.
func (s storage) Querier(int64, int64) (prom.Querier, error) { return s, nil }

// Close implements storage.Querier.
func (storage) Close() error { return nil }

// LabelValues implements storage.Querier. The engine does not ask.
func (storage) LabelValues(context.Context, string, *prom.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier. The engine does not ask.
func (storage) LabelNames(context.Context, *prom.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Select implements storage.Querier: the series that have all labels, in the order of their labels.
func (s storage) Select(_ context.Context, _ bool, _ *prom.SelectHints, matchers ...*labels.Matcher) prom.SeriesSet {
	set := &selected{at: -1}
	for _, one := range s {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.labels.Get(m.Name)) }) {
			set.list = append(set.list, prom.NewListSeries(one.labels, one.samples))
		}
	}
	slices.SortFunc(set.list, func(a, b prom.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

// selected is a list of series.
type selected struct {
	list []prom.Series
	at   int
}

// Next implements storage.SeriesSet.
func (s *selected) Next() bool { s.at++; return s.at < len(s.list) }

// At implements storage.SeriesSet.
func (s *selected) At() prom.Series { return s.list[s.at] }

// Err implements storage.SeriesSet.
func (*selected) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (*selected) Warnings() annotations.Annotations { return nil }

// sample is a number at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

// T is the time.
func (s sample) T() int64 { return s.at }

// ST is the time when the counting began, which is not known.
func (sample) ST() int64 { return 0 }

// F is the value.
func (s sample) F() float64 { return s.value }

// H is nil: histograms are series of buckets.
func (sample) H() *histogram.Histogram { return nil }

// FH is nil as well.
func (sample) FH() *histogram.FloatHistogram { return nil }

// Type says that the sample is a number.
func (sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// Copy returns the sample itself, which nothing changes.
func (s sample) Copy() chunks.Sample { return s }
