package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// retainedTask measures what streams retain, in a process of its own: the runtime keeps the memory of goroutines that
// have ended, and the next fleet reuses it.
type retainedTask struct {
	Forget    time.Duration // see sizes
	Services  int
	Streams   int
	Conns     int
	Variant   variant
	Bare      bool   // the server is the bare one
	Recording string // the file with the messages that a stream was sent: written by the product's task, read by the bare one
	Profile   string // file of a heap profile; empty: none
}

// streamMemory compares streams of the product with streams that receive the same bytes from a bare gRPC server.
func streamMemory(b *bench) error {
	b.release()
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, k := range []struct {
		figure            string
		services, streams int
		perConn           int
		variant           variant
	}{
		{"delta-100", b.sizes.tiny, b.sizes.streams, 10, delta},
		{"delta-10k", b.sizes.large, b.sizes.fewer, 10, delta},
		{"sotw-100", b.sizes.tiny, b.sizes.streams, 10, sotw},
		{"sotw-10k", b.sizes.large, b.sizes.fewer, 10, sotw},
		{"delta-100-own-tcp", b.sizes.tiny, b.sizes.streams, 1, delta},
	} {
		bare := "stream-memory/bare"
		if k.perConn == 1 {
			bare = "stream-memory/bare-own-tcp"
		}
		t := retainedTask{
			Forget: b.sizes.forget, Services: k.services, Streams: k.streams, Conns: k.streams / k.perConn, Variant: k.variant,
			Recording: filepath.Join(dir, k.figure),
		}
		// The runtime starts goroutines with the stack that others had need of, on average: 4 KiB more or less for each, by
		// chance. The median of some runs says more than one.
		for range b.reps(3) {
			own, err := b.retainedApart(t, k.figure)
			if err != nil {
				return err
			}
			t := t
			t.Bare = true
			floor, err := b.retainedApart(t, k.figure+"-bare")
			if err != nil {
				return err
			}
			b.record(bare, floor/1024)
			b.record("stream-memory/"+k.figure, (own-floor)/1024)
		}
	}
	return nil
}

// retainedApart is the memory that a stream retains, measured in a process of its own.
func (b *bench) retainedApart(t retainedTask, name string) (float64, error) {
	if b.profiles != "" {
		t.Profile = filepath.Join(b.profiles, "stream-memory-"+name+".heap.pprof")
	}
	p, err := b.apart(apartTask{Retained: &t})
	if err != nil {
		return 0, err
	}
	said, err := p.line()
	if err := errors.Join(err, p.end()); err != nil {
		return 0, fmt.Errorf("%s in a process of its own: %w", name, err)
	}
	return strconv.ParseFloat(said, 64)
}

// run carries out the measurement and prints the memory that each stream retains, in bytes.
func (t retainedTask) run(ctx context.Context, w io.Writer) error {
	b := newBench(ctx, options{sizes: sizes{forget: t.Forget}})
	measure := b.retainedByStream
	if t.Bare {
		measure = b.retainedByBare
	}
	grown, err := measure(t)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, grown)
	return err
}

// size are the clients of the task.
func (t retainedTask) size() fleetSize {
	return fleetSize{streams: t.Streams, conns: t.Conns, variant: t.Variant, first: wide}
}

// retainedByStream is the memory that a settled stream of the product retains, with the client's part. It saves the recording of one stream.
func (b *bench) retainedByStream(t retainedTask) (float64, error) {
	scripts, err := b.learned(t.Services, 0, wide)
	if err != nil {
		return 0, err
	}
	p, err := serve(b.world(t.Services))
	if err != nil {
		return 0, err
	}
	defer p.close()
	rec := &recording{}
	one := fleetSize{streams: wide, conns: 1, variant: t.Variant}
	few, err := connectRecorded(p.addr, one, scripts, rec)
	if err != nil {
		return 0, err
	}
	defer few.close()
	if err := few.wait(few.settled, "the first answers"); err != nil {
		return 0, err
	}
	if err := rec.save(t.Recording); err != nil {
		return 0, err
	}
	return b.growth(t, p.addr, scripts)
}

func (b *bench) retainedByBare(t retainedTask) (float64, error) {
	scripts, err := b.learned(t.Services, 0, wide)
	if err != nil {
		return 0, err
	}
	rec, err := loadRecording(t.Recording)
	if err != nil {
		return 0, err
	}
	s, err := serveBare(t.Variant, rec)
	if err != nil {
		return 0, err
	}
	defer s.close()
	return b.growth(t, s.addr, scripts[:1]) // the recording is of the first class
}

// growth is how much memory each of a number of streams retains once it is settled. The first ones are not counted:
// with them grows the memory that all streams share.
func (b *bench) growth(t retainedTask, addr string, scripts []*script) (float64, error) {
	half := t.size()
	half.streams, half.conns = t.Streams/2, t.Conns/2
	var at [2]float64
	for i := range at {
		half.first = wide + i*half.streams
		f, err := connect(addr, half, scripts)
		if err != nil {
			return 0, err
		}
		defer f.close()
		if err := f.wait(f.settled, "the first answers"); err != nil {
			return 0, err
		}
		if err := b.pause(b.sizes.forget); err != nil { // the server keeps state that streams share for two seconds
			return 0, err
		}
		at[i] = retained()
	}
	return (at[1] - at[0]) / float64(half.streams), heapProfile(t.Profile)
}

// save writes the recorded messages to a file.
func (r *recording) save(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := gob.NewEncoder(f).Encode(r.messages); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}

func loadRecording(path string) (*recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var messages [types][][]byte
	if err := gob.NewDecoder(f).Decode(&messages); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &recording{messages: messages}, nil
}
