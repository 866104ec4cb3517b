package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Settled says how an edit of files came to all whom it concerns.
type Settled struct {
	Took    time.Duration // until the last of them had acknowledged it
	Told    int           // how many it concerns
	Proxies int           // how many there are
}

// errNoCommit says that nothing was changed by an edit so far.
var errNoCommit = errors.New("the control plane has made nothing of it")

// AwaitSettled waits until all that was edited from begin on is in force in every proxy, by the control plane's own
// account. It asks every two milliseconds, so the duration returned is a little too long.
func (p Pages) AwaitSettled(ctx context.Context, begin time.Time) (Settled, error) {
	var s Settled
	err := Until(ctx, "every proxy to acknowledge an edit", func(ctx context.Context) error {
		revision, told, err := p.lastCommit(ctx, begin)
		if err != nil {
			return err
		}
		acked, proxies, err := p.acknowledged(ctx, revision)
		s = Settled{Took: time.Since(begin), Told: told, Proxies: proxies}
		if err == nil && acked < told {
			err = fmt.Errorf("%d of the %d proxies it concerns have acknowledged it", acked, told)
		}
		return err
	})
	return s, err
}

// lastCommit is the newest commit with objects since begin, and the number of proxies that it was sent to.
func (p Pages) lastCommit(ctx context.Context, begin time.Time) (revision uint64, told int, err error) {
	var page struct {
		Commits []struct {
			Revision uint64
			At       time.Time
			Objects  map[string]int
			Streams  int
		}
	}
	if err := p.read(ctx, "/debug/cellz", &page); err != nil {
		return 0, 0, err
	}
	for _, c := range page.Commits { // the newest first
		if c.At.After(begin) && len(c.Objects) > 0 {
			return c.Revision, c.Streams, nil
		}
	}
	return 0, 0, errNoCommit
}

// acknowledged counts all proxies, and the proxies that have acknowledged everything up to a revision.
func (p Pages) acknowledged(ctx context.Context, revision uint64) (acked, proxies int, err error) {
	var page []struct {
		Resources map[string]struct {
			State         string
			AckedRevision uint64 `json:"acked_revision"`
		}
	}
	if err := p.read(ctx, "/debug/syncz", &page); err != nil {
		return 0, 0, err
	}
	for _, proxy := range page {
		behind := false
		for _, r := range proxy.Resources {
			behind = behind || r.State != "IGNORED" && r.AckedRevision < revision
		}
		if !behind {
			acked++
		}
	}
	return acked, len(page), nil
}

// read decodes a page of JSON.
func (p Pages) read(ctx context.Context, path string, into any) error {
	text, err := p.Get(ctx, path)
	if err == nil {
		err = json.Unmarshal([]byte(text), into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Unchanged reports whether an AwaitSettled ended because nothing came of the edit.
func Unchanged(err error) bool { return errors.Is(err, errNoCommit) }

// Problems are what the control plane has to say about its configuration, one line each: file:line: field: reason [code].
func (p Pages) Problems(ctx context.Context) ([]string, error) {
	var page []struct {
		File, Field, Reason, Code string
		Line                      int
	}
	err := p.read(ctx, "/debug/problemz", &page)
	var list []string
	for _, one := range page {
		list = append(list, fmt.Sprintf("%s:%d: %s: %s [%s]", one.File, one.Line, one.Field, one.Reason, one.Code))
	}
	return list, err
}
