package envoy

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program writes a shell script.
func program(t *testing.T, name, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	a, b := program(t, "a", ""), program(t, "envoy", "")
	t.Setenv("PATH", filepath.Dir(b))
	for _, c := range []struct {
		candidates []Candidate
		want       string
		reason     string
	}{
		{nil, b, ""},
		{[]Candidate{{From: "--envoy", Path: a}, {From: "ENVOY", Path: b}}, a, ""},
		{[]Candidate{{From: "--envoy"}, {From: "ENVOY", Path: a}}, a, ""},
		{[]Candidate{{From: "binaryPath", Path: "/no/such", Optional: true}}, b, ""},
		{[]Candidate{{From: "ENVOY", Path: "/no/such"}}, "", "ENVOY is set to /no/such: "},
	} {
		got, err := Find(c.candidates...)
		if got != c.want || (err == nil) != (c.reason == "") || err != nil && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%v: %q, %v", c.candidates, got, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(); !errors.Is(err, errNotFound) || !strings.Contains(err.Error(), "--envoy=FILE or in $ENVOY") {
		t.Errorf("%v does not tell what to do", err)
	}
}

func TestCheck(t *testing.T) {
	says := func(version string) string {
		return program(t, "envoy", "echo; echo 'envoy  version: 0123abc/"+version+"/Clean/RELEASE/BoringSSL'")
	}
	for _, c := range []struct{ binary, version, remark, reason string }{
		{says("1.40.0"), "1.40.0", "", ""},
		{says("1.37.4-dev"), "1.37.4-dev", "", ""},
		{says("1.36.2"), "1.36.2", "", "is Envoy 1.36.2, which is too old: 1.37 to 1.40 are supported; set another binary with --envoy=FILE or $ENVOY"},
		{says("1.41.0"), "1.41.0", "newer than the tested versions", ""},
		{program(t, "nginx", "echo nginx/1.2.3"), "", "", `is not Envoy 1.37 or newer: the output of --version is "nginx/1.2.3"`},
		{program(t, "envoy", "echo GLIBC_2.31 not found >&2; exit 1"), "", "", "does not run on this host: exit status 1: GLIBC_2.31 not found"},
	} {
		version, remark, err := Check(t.Context(), c.binary)
		if version != c.version || !strings.Contains(remark, c.remark) || (remark == "") != (c.remark == "") ||
			(err == nil) != (c.reason == "") || err != nil && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("want %+v, got %q, %q, %v", c, version, remark, err)
		}
	}
}

func TestArgs(t *testing.T) {
	o := Options{Config: "/c.json", Drain: 45 * time.Second, Flush: time.Second}
	want := strings.Fields("-c /c.json --drain-time-s 45 --drain-strategy immediate --local-address-ip-version v4 --file-flush-interval-msec 1000 --allow-unknown-static-fields --disable-hot-restart")
	if got := o.Args(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	o.IPv6, o.LogLevel, o.ComponentLogLevel, o.Concurrency, o.Override = true, "debug", "misc:error", 3, "admin: {}"
	want[7] = "v6"
	want = append(want, "-l", "debug", "--component-log-level", "misc:error", "--concurrency", "3", "--config-yaml", "admin: {}")
	if got := o.Args(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// start runs a script that has said "up".
func start(t *testing.T, script string) *Process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := Start(Options{Binary: program(t, "envoy", script), Stdout: w, Stderr: os.Stderr})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
	return p
}

func TestProcess(t *testing.T) {
	if err := start(t, "echo up; exit 0").Wait(); err != nil {
		t.Error(err)
	}
	if err := start(t, "echo up; exit 3").Wait(); err == nil || err.Error() != "exit status 3" {
		t.Error(err)
	}
	p := start(t, `sleep 1000 & trap "kill $!; exit 0" TERM; echo up; wait`)
	if p.PID() <= 0 {
		t.Error("no number")
	}
	if err := p.Terminate(); err != nil {
		t.Error(err)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	_ = p.Kill() // after its end; it kills no other process
}

// TestKillReachesAll: what Envoy has started ends with it.
func TestKillReachesAll(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := Start(Options{Binary: program(t, "envoy", "trap '' TERM; (sleep 1000; :) & wait; wait"), Stdout: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if group, err := syscall.Getpgid(p.PID()); err != nil || group != p.PID() {
		t.Errorf("its group is %d, %v; its number %d", group, err, p.PID())
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := p.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("%v: no guesses about a process we killed", err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil { // ends when no process holds the other end any more
		t.Errorf("read %d, %v", n, err)
	}
}

func TestEndsAreExplained(t *testing.T) {
	if err := start(t, "echo up; kill -9 $$").Wait(); err == nil || !strings.Contains(err.Error(), "it ran out of memory") {
		t.Error(err)
	}
	if err := start(t, "echo up; kill -SEGV $$").Wait(); err == nil || !strings.Contains(err.Error(), "a bug in Envoy") {
		t.Error(err)
	}
}

func TestCannotStart(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/no/such", t.TempDir(), text} {
		if _, err := Start(Options{Binary: path}); err == nil || !Permanent(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if Permanent(syscall.EAGAIN) {
		t.Error("a full process table is no reason to give up")
	}
}

// admin is an admin interface that shows the statistics given.
func admin(t *testing.T, stats string) (*Admin, *[]string) {
	t.Helper()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
		if stats == "broken" {
			http.Error(w, "I am ill", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, stats)
	}))
	t.Cleanup(server.Close)
	return NewAdmin(strings.TrimPrefix(server.URL, "http://"), "agent_health"), &asked
}

func TestReady(t *testing.T) {
	const got = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 2\nlistener_manager.workers_started: 1\n"
	for _, c := range []struct{ stats, want string }{
		{got + "server.state: 0", ""},
		{got + "server.state: 1", "Envoy is draining"},
		{got + "server.state: 2", "still getting its first configuration"},
		{got + "server.state: 9", "Envoy is in state 9"},
		{strings.ReplaceAll(got, "started: 1", "started: 0"), "workers have not started"},
		{"", ErrDisconnected.Error()},
		{"control_plane.connected_state: 1", "has not received any clusters from the control plane yet"},
		{"cluster_manager.cds.update_success: 1", ErrDisconnected.Error()},
		{"cluster_manager.cds.update_success: 1\ncontrol_plane.connected_state: 1", "has not received any listeners"},
		{"cluster_manager.cds.update_rejected: 3", "has rejected all clusters from the control plane (3 times)"},
		{"broken", "500 Internal Server Error: I am ill"},
	} {
		a, _ := admin(t, c.stats)
		err := a.Ready(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.stats, err, c.want)
		}
	}
	if err := NewAdmin("127.0.0.1:1").Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "Envoy's admin interface: ") {
		t.Errorf("with no Envoy: %v", err)
	}
}

// TestStaysReady: a process that has been ready is asked for its state alone; the next one must become ready itself.
func TestStaysReady(t *testing.T) {
	page, status := "", http.StatusOK
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.WriteHeader(status)
		fmt.Fprint(w, page)
	}))
	defer server.Close()
	a := NewAdmin(strings.TrimPrefix(server.URL, "http://"))
	for _, c := range []struct {
		page   string
		status int
		next   bool // another process was started
		path   string
		want   string
	}{
		{"server.state: 2\n", 200, false, "/stats", ErrDisconnected.Error()},
		{"cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 2\nlistener_manager.workers_started: 1\n", 200, false, "/stats", ""},
		{"LIVE\n", 200, false, "/ready", ""},
		{"DRAINING\n", 503, false, "/ready", "Envoy is in the state DRAINING"},
		{"LIVE\n", 200, false, "/ready", ""},
		{"server.state: 0\n", 200, true, "/stats", ErrDisconnected.Error()},
	} {
		if c.next {
			a.Expect(0)
		}
		page, status = c.page, c.status
		err := a.Ready(t.Context())
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want || asked[len(asked)-1] != c.path {
			t.Errorf("%q: %v, want %q; asked for %v", c.page, err, c.want, asked)
		}
	}
}

func TestConnectionsOfOthersOnly(t *testing.T) {
	a, _ := admin(t, `listener.0.0.0.0_80.downstream_cx_active: 3
listener.0.0.0.0_80.worker_0.downstream_cx_active: 2
listener.0.0.0.0_80.worker_1.downstream_cx_active: 1
listener.admin.downstream_cx_active: 7
listener.admin.main_thread.downstream_cx_active: 7
listener.agent_health.downstream_cx_active: 1
listener.[__1]_80.downstream_cx_active: 4
`)
	if n, err := a.Connections(t.Context()); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	a, _ = admin(t, "broken")
	if _, err := a.Connections(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestDrain(t *testing.T) {
	a, asked := admin(t, "OK")
	if err := errors.Join(a.Drain(t.Context(), true), a.Drain(t.Context(), false)); err != nil {
		t.Error(err)
	}
	a.Gateway = true
	if err := a.Drain(t.Context(), false); err != nil {
		t.Error(err)
	}
	want := []string{"POST /drain_listeners?graceful&inboundonly&skip_exit", "POST /drain_listeners?graceful&inboundonly", "POST /drain_listeners?graceful"}
	if !slices.Equal(*asked, want) {
		t.Errorf("asked %q", *asked)
	}
}

// TestBootstrapInMemory: a process reads a bootstrap that is in no file, also when it reads it again.
func TestBootstrapInMemory(t *testing.T) {
	dir := t.TempDir()
	binary, seen := filepath.Join(dir, "envoy"), filepath.Join(dir, "seen")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\ncat $2 $2 > "+seen+"\necho $2 >> "+seen+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("{}", 100<<10) // more than a pipe holds
	o := Options{Binary: binary, Config: "/full/envoy-rev.json", Text: text}
	p, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"a process", "a validation"} {
		if got, err := os.ReadFile(seen); err != nil || string(got) != text+text+"/dev/fd/3\n" {
			t.Errorf("%s has read %d bytes, %v", run, len(got), err)
		}
		if err := errors.Join(os.Remove(seen), Validate(t.Context(), o)); err != nil {
			t.Error(err)
		}
	}
}
