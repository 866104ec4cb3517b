package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// mayhem is what happens to a mesh.
type mayhem struct {
	*rand.Rand
	files   *files
	mesh    *mesh
	paused  []int // processes that stand still
	counted map[string]int
	w       io.Writer
	begin   time.Time
}

// round is rough for a while, lets everything come to rest, and compares with a cold start in dir.
func (m *mayhem) round(ctx context.Context, n int, dir string) error {
	m.counted = map[string]int{}
	for range 5 + m.IntN(20) {
		if err := m.act(ctx); err != nil {
			return err
		}
		if err := m.pause(ctx); err != nil {
			return err
		}
	}
	if err := m.rest(ctx); err != nil {
		return err
	}
	served, err := m.served()
	if err != nil {
		return err
	}
	began := time.Now()
	cold := &mesh{programs: m.mesh.programs, dir: dir}
	defer cold.stop()
	if err := cold.start(ctx, served, len(m.mesh.nodes)); err != nil {
		return fmt.Errorf("the cold start: %w", err)
	}
	sum, err := compare(ctx, m.mesh, cold)
	if err != nil {
		return err
	}
	if err := m.mesh.sound(); err != nil {
		return err
	}
	cold.stop()
	cold.agents, cold.discovery = nil, nil
	fmt.Fprintf(m.w, "chaos: %4.0fs round %d: %s; %d files; %d Envoys are as after a cold start, with %s (compared in %.1fs)\n",
		time.Since(m.begin).Seconds(), n, m.roundEvents(), len(served), len(m.mesh.nodes), sum, time.Since(began).Seconds())
	return os.RemoveAll(dir)
}

// roundEvents lists the events of the round.
func (m *mayhem) roundEvents() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(m.counted)) {
		parts = append(parts, fmt.Sprintf("%d %s", m.counted[what], what))
	}
	return strings.Join(parts, ", ")
}

// pause waits for no time at all, or for long enough that some of the work under way is done.
func (m *mayhem) pause(ctx context.Context) error {
	t := time.NewTimer(time.Duration(pick(m.Rand, 0, 0, 5, 50, 300)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// action is something that can happen, as often as its weight says.
type action struct {
	what   string
	weight int
	do     func(ctx context.Context) error
}

func (m *mayhem) actions() []action {
	list := []action{
		{"edits", 6, m.edit},
		{"edits in place", 2, func(context.Context) error { return m.overwrite(m.files.content(m.Rand)) }},
		{"files broken", 3, m.damage},
		{"removals", 2, m.remove},
		{"renames", 2, m.rename},
		{"control planes killed or started", 2, m.killDiscovery},
	}
	if len(m.mesh.nodes) == 0 {
		return list
	}
	return append(list,
		action{"Envoys killed", 1, m.killEnvoy},
		action{"agents killed or started", 1, m.killAgent},
		action{"Envoys stopped or resumed", 1, m.freeze})
}

func (m *mayhem) act(ctx context.Context) error {
	all, sum := m.actions(), 0
	for _, a := range all {
		sum += a.weight
	}
	n := m.IntN(sum)
	for _, a := range all {
		if n -= a.weight; n < 0 {
			m.counted[a.what]++
			if err := a.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", a.what, err)
			}
			return nil
		}
	}
	return nil
}

func (m *mayhem) name() string { return pick(m.Rand, m.files.names...) }

func (m *mayhem) path(name string) string { return filepath.Join(m.mesh.discovery.ConfigDir, name) }

// edit replaces a file, or brings it back.
func (m *mayhem) edit(context.Context) error {
	_, err := m.mesh.discovery.Write(m.name(), m.files.content(m.Rand))
	return err
}

// overwrite writes into a file, so that a part of it may be read.
func (m *mayhem) overwrite(text string) error {
	f, err := os.OpenFile(m.path(m.name()), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	half := len(text) / 2
	_, err = f.WriteString(text[:half])
	if err == nil {
		_, err = f.WriteString(text[half:])
	}
	if end := f.Close(); err == nil {
		err = end
	}
	return err
}

func (m *mayhem) damage(context.Context) error {
	text := broken(m.Rand, m.files.content(m.Rand))
	if m.IntN(2) == 0 {
		return m.overwrite(text)
	}
	_, err := m.mesh.discovery.Write(m.name(), text)
	return err
}

func (m *mayhem) remove(context.Context) error { return ignoreAbsent(os.Remove(m.path(m.name()))) }

// rename gives a file another one's name, which is gone by that.
func (m *mayhem) rename(context.Context) error {
	return ignoreAbsent(os.Rename(m.path(m.name()), m.path(m.name())))
}

func ignoreAbsent(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func (m *mayhem) killDiscovery(ctx context.Context) error {
	if m.mesh.down {
		m.mesh.down = false
		return m.mesh.discovery.Start(ctx)
	}
	m.mesh.discovery.Kill()
	m.mesh.down = true
	return nil
}

// envoyOf is the process of a node's present Envoy; 0 if there is none.
func (m *mayhem) envoyOf(i int) int {
	if m.mesh.agents[i] == nil {
		return 0
	}
	pids, err := m.mesh.agents[i].EnvoyPIDs()
	if err != nil || len(pids) == 0 {
		return 0
	}
	return pids[len(pids)-1]
}

func (m *mayhem) killEnvoy(context.Context) error {
	if pid := m.envoyOf(m.IntN(len(m.mesh.nodes))); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	return nil
}

func (m *mayhem) killAgent(context.Context) error {
	i := m.IntN(len(m.mesh.nodes))
	if m.mesh.agents[i] == nil {
		return m.mesh.startAgent(i)
	}
	m.mesh.agents[i].Stop()
	m.mesh.agents[i] = nil
	return nil
}

// freeze suspends an Envoy, or resumes all.
func (m *mayhem) freeze(context.Context) error {
	if len(m.paused) > 0 {
		m.thaw()
		return nil
	}
	if pid := m.envoyOf(m.IntN(len(m.mesh.nodes))); pid != 0 && syscall.Kill(pid, syscall.SIGSTOP) == nil {
		m.paused = append(m.paused, pid)
	}
	return nil
}

func (m *mayhem) thaw() {
	for _, pid := range m.paused {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
	}
	m.paused = nil
}

// rest makes every file valid or takes it away, starts the killed processes, and waits for that.
func (m *mayhem) rest(ctx context.Context) error {
	m.thaw()
	for _, name := range m.files.names {
		if m.IntN(8) == 0 {
			if err := ignoreAbsent(os.Remove(m.path(name))); err != nil {
				return err
			}
			continue
		}
		if _, err := m.mesh.discovery.Write(name, m.files.content(m.Rand)); err != nil {
			return err
		}
	}
	return m.mesh.mend(ctx)
}

// served are the files as they are.
func (m *mayhem) served() (map[string]string, error) {
	served := map[string]string{}
	for _, name := range m.files.names {
		text, err := os.ReadFile(m.path(name))
		switch {
		case os.IsNotExist(err):
		case err != nil:
			return nil, err
		default:
			served[name] = string(text)
		}
	}
	return served, nil
}
