package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/capture/casefile"
	"github.com/pilotmesh/pilot/test/capture/lab"
)

// fullPath is where programs are looked for that a case may have on its own PATH.
const fullPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// patience is how long a command may take. A command that waits for a lock has longer.
const patience = 50 * time.Second

// backend is one way to put rules in place: the tools on PATH, and the flags that ask for it.
type backend struct {
	name  string
	tools string
	flags []string
}

// scene is one case while it runs.
type scene struct {
	t       *testing.T
	c       casefile.Case
	backend backend
	agent   string
	dir     string
	lab     *lab.Lab
	base    lab.Snapshot // before the first command
	marked  lab.Snapshot
	last    casefile.Step // the last capture
	locked  chan struct{}
}

// play runs a case, and compares each step with its expected result.
func play(t *testing.T, c casefile.Case, b backend, agent string) {
	s := &scene{t: t, c: c, backend: b, agent: agent, dir: t.TempDir()}
	if err := s.furnish(); err != nil {
		t.Fatal(err)
	}
	l, err := lab.New(lab.Options{Stack: c.Stack, Links: c.Links, NoProxy: c.NoProxy, Transparent: c.Transparent, UID: c.UID, GID: c.GID})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.lab = l
	steps := c.Steps
	if !c.Stays {
		steps = append(slices.Clone(steps),
			casefile.Step{Line: c.Line, Text: "clean", Verb: "clean", Want: "exit 0"},
			casefile.Step{Line: c.Line, Text: "same", Verb: "same", Want: "as before"})
	}
	for _, step := range steps {
		saw, detail, err := s.do(step)
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", c.File, step.Line, step.Text, err)
		}
		if saw != step.Want {
			t.Errorf("%s:%d: %s\n  saw   %s\n  want  %s\n  %s", c.File, step.Line, step.Text, saw, step.Want, strings.Join(detail, "\n  "))
		}
	}
}

// furnish writes the files and tools that the commands see.
func (s *scene) furnish() error {
	passwd, group, resolv := "root:x:0:0::/:/bin/sh\n", "root:x:0:\n", ""
	for _, user := range s.c.Users {
		f := strings.Split(user, ":")
		if len(f) != 3 {
			return fmt.Errorf("the user %q is not name:uid:gid", user)
		}
		passwd += fmt.Sprintf("%s:x:%s:%s::/:/bin/false\n", f[0], f[1], f[2])
		group += fmt.Sprintf("%s:x:%s:\n", f[0], f[2])
	}
	for _, server := range s.c.Resolv {
		resolv += "nameserver " + server + "\n"
	}
	for _, d := range []string{"etc", "run", "bin"} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"etc/passwd": passwd, "etc/group": group, "etc/resolv.conf": resolv, "run/xtables.lock": ""} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for as, name := range tools(s.c.Tools, s.backend.tools) {
		found := lookup(name)
		if found == "" {
			continue
		}
		if err := os.Symlink(found, filepath.Join(s.dir, "bin", as)); err != nil {
			return err
		}
	}
	return nil
}

// tools are the names on PATH, and their programs. The words are nft, legacy, both, none, or the names of programs; NAME=PROGRAM
// puts another one in the place of NAME.
func tools(words []string, usual string) map[string]string {
	out := map[string]string{"sh": "sh", "true": "true", "cat": "cat"}
	variant := func(as, kind string) {
		for _, v := range []string{"iptables", "ip6tables"} {
			for _, tail := range []string{"", "-save", "-restore"} {
				out[v+as+tail] = v + kind + tail
			}
		}
	}
	if len(words) == 0 {
		words = []string{usual}
	}
	if len(words) > 1 {
		for _, name := range words {
			as, program, other := strings.Cut(name, "=")
			if !other {
				program = as
			}
			out[as] = program
		}
		return out
	}
	switch words[0] {
	case "none":
		return out
	case "legacy":
		variant("", "-legacy")
		variant("-legacy", "-legacy")
	case "both":
		variant("-legacy", "-legacy")
		fallthrough
	default:
		variant("", "-nft")
		variant("-nft", "-nft")
	}
	out["ip"], out["nft"] = "ip", "nft"
	return out
}

func lookup(name string) string {
	for _, dir := range strings.Split(fullPath, ":") {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// do takes a step, and says what comes of it. Details explain a surprise.
func (s *scene) do(st casefile.Step) (saw string, detail []string, err error) {
	if (st.Verb == "capture" || st.Verb == "clean") && s.base == nil {
		s.base = lab.SnapshotOf(s.lab.Pod, fullPath)
	}
	switch st.Verb {
	case "mark":
		s.marked = lab.SnapshotOf(s.lab.Pod, fullPath)
	case "unchanged":
		saw, detail = s.marked.Compare(lab.SnapshotOf(s.lab.Pod, fullPath))
	case "same":
		saw, detail = s.base.Compare(lab.SnapshotOf(s.lab.Pod, fullPath))
	case "capture":
		s.last = st
		return s.command(st, "istio-iptables")
	case "clean":
		if len(st.Args) == 0 && len(st.Env) == 0 {
			st.Env, st.Args = s.last.Env, withoutCapture(s.last.Args)
		}
		if slices.Equal(st.Args, []string{"--"}) { // no flags at all
			st.Args = nil
		}
		return s.command(st, "istio-clean-iptables")
	case "exec":
		code, out, _ := s.exec(0, st.Args, nil, filepath.Join(s.dir, "bin")+":"+fullPath)
		if code != 0 {
			return "", nil, fmt.Errorf("exit %d: %s", code, out)
		}
	case "lock":
		return "", nil, s.lock(st.Args)
	case "open":
		saw, err = s.lab.Open(st.Args[0], st.Args[1:])
	case "use":
		saw = s.lab.Use(st.Args[0])
	default:
		saw, err = s.lab.Ask(append([]string{st.Verb}, st.Args...))
	}
	return saw, detail, err
}

var onlyForCapture = regexp.MustCompile(`^(-n|--dry-run|--run-validation|--skip-rule-apply|--reconcile|--force-apply)(=.*)?$`)

// withoutCapture leaves out the flags that make no sense for a clean-up.
func withoutCapture(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--probe-timeout" || args[i] == "--iptables-probe-port":
			i++
		case !onlyForCapture.MatchString(args[i]):
			out = append(out, args[i])
		}
	}
	return out
}

// command runs a command of the agent, and says how it ended.
func (s *scene) command(st casefile.Step, name string) (saw string, detail []string, err error) {
	begin := time.Now()
	argv := append([]string{s.agent, name}, st.Args...)
	if !s.c.Once {
		argv = append(argv, s.backend.flags...)
	}
	code, out, late := s.exec(st.UID, argv, st.Env, filepath.Join(s.dir, "bin"))
	saw = "exit " + strconv.Itoa(code)
	if late {
		saw = "did not end"
	}
	if s.locked != nil {
		select {
		case <-s.locked:
			if time.Since(begin) > time.Second {
				saw += ", having waited for the lock"
			}
		default:
			saw += ", past the lock"
		}
		s.locked = nil
	}
	if st.Says != nil && st.Says.MatchString(out) {
		saw += ", says so"
	} else if st.Says != nil {
		saw += ", does not say so"
	}
	return saw, strings.Split(strings.TrimSpace(out), "\n"), nil
}

// exec runs a command in the workload with files of its own, its environment and nothing else.
func (s *scene) exec(uid int, argv, env []string, path string) (code int, out string, late bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var said bytes.Buffer
	var err error
	s.lab.Pod.Do(-1, -1, func() {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{inside, s.dir, strconv.Itoa(uid)}, argv...)...)
		cmd.Env = append([]string{"PATH=" + path, "HOME=/"}, env...)
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
		cmd.WaitDelay = time.Second
		err = cmd.Run()
	})
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		code = 125
		said.WriteString(err.Error())
	}
	return code, said.String(), ctx.Err() != nil
}

// lock holds the lock of iptables for some seconds, as another program would.
func (s *scene) lock(args []string) error {
	duration, err := time.ParseDuration(args[0] + "s")
	if err != nil {
		return err
	}
	fd, err := unix.Open(filepath.Join(s.dir, "run/xtables.lock"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		return err
	}
	free := make(chan struct{})
	s.locked = free
	time.AfterFunc(duration, func() {
		close(free)
		_ = unix.Close(fd) // which releases the lock
	})
	return nil
}
