package logs_test

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pilotmesh/pilot/test/podrunner/logs"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	log, err := logs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 20_000)
	log.Copy("stdout", strings.NewReader("one\ntwo\n"+long+"\n"))
	log.Copy("stderr", strings.NewReader("three\nno end"))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	number := func(n int64) *int64 { return &n }
	for _, test := range []struct {
		options logs.Options
		want    string
	}{
		{logs.Options{}, "one\ntwo\n" + long + "\nthree\nno end"},
		{logs.Options{Tail: number(2)}, "three\nno end"},
		{logs.Options{Tail: number(3)}, long + "\nthree\nno end"},
		{logs.Options{Tail: number(0)}, ""},
		{logs.Options{Limit: number(5)}, "one\nt"},
		{logs.Options{Stream: "stderr"}, "three\nno end"},
	} {
		var out bytes.Buffer
		if err := logs.Read(t.Context(), path, nil, test.options, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != test.want {
			t.Errorf("%+v: got %d bytes: %.80q", test.options, out.Len(), out.String())
		}
	}
	if tail, err := logs.Tail(path, 1, 3); err != nil || tail != "end" {
		t.Errorf("tail %q, %v", tail, err)
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	log, err := logs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	var work sync.WaitGroup
	work.Go(func() { log.Copy("stdout", from) })
	out, in := io.Pipe()
	work.Go(func() {
		if err := logs.Read(t.Context(), path, log, logs.Options{Follow: true}, in); err != nil {
			t.Error(err)
		}
		_ = in.Close()
	})
	var heard bytes.Buffer
	listener := log.Listen("stdout", &heard)
	for _, line := range []string{"a\n", "b\n", "c\n"} {
		_, _ = io.WriteString(to, line)
		got := make([]byte, len(line))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != line {
			t.Errorf("followed %q, %v", got, err)
		}
	}
	_ = to.Close()
	_ = log.Close()
	<-listener.Done()
	if rest, _ := io.ReadAll(out); len(rest) > 0 {
		t.Errorf("rest %q", rest)
	}
	work.Wait()
	if heard.String() != "a\nb\nc\n" {
		t.Errorf("heard %q", heard.String())
	}
}
