package ca

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/run/statefile"
)

// memory is a store like a Secret. refuse is why it may be neither read nor written.
type memory struct {
	mu     sync.Mutex
	data   map[string][]byte
	refuse error
	reads  int
}

func (m *memory) Update(_ context.Context, change func(map[string][]byte, error) (map[string][]byte, error)) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.refuse != nil {
		return nil, m.refuse
	}
	next, err := change(maps.Clone(m.data), nil)
	if next != nil {
		m.data = next
	}
	return m.data, err
}

// set replaces the stored data, and returns the number of reads before.
func (m *memory) set(data map[string][]byte, refuse error) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data, m.refuse = data, refuse
	return m.reads
}

func (m *memory) get() (map[string][]byte, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data, m.reads
}

// losing are settings of a keeper that looks often.
func losing(s Store) Settings {
	return Settings{Store: s, Roots: Roots{Valid: 24 * time.Hour, Grace: 20, Spread: time.Hour}, Check: 10 * time.Millisecond}
}

// TestLostSecretIsWrittenBack: whatever becomes of a Secret with the root of the mesh, the keeper signs with the same root, and writes it
// back as soon as it may. A keeper that starts then has the same root.
func TestLostSecretIsWrittenBack(t *testing.T) {
	s := &memory{}
	k := keep(t, losing(s))
	was := k.Authority()
	kept, _ := s.get()
	without := func(name string) map[string][]byte {
		data := maps.Clone(kept)
		delete(data, name)
		return data
	}
	half := maps.Clone(kept)
	half[keptCert] = half[keptCert][:len(half[keptCert])/2]
	other, err := Roots{Organization: "evil", Valid: time.Hour}.First(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string]map[string][]byte{
		"it is deleted": nil, "the key is gone": without(keptKey), "the certificate is gone": without(keptCert), "half a certificate": half,
		"it is replaced": other.Data(),
	} {
		s.set(data, nil)
		eventually(t, what+", and it is written back", func() bool {
			now, _ := s.get()
			return string(now[keptKey]) == string(kept[keptKey]) && string(now[keptCert]) == string(kept[keptCert])
		})
		if k.Authority() != was {
			t.Fatalf("%s: %s signs in the place of %s", what, k.Authority(), was)
		}
	}
	refused := errors.New("it may not be read")
	reads := s.set(nil, refused)
	eventually(t, "the store is asked in vain", func() bool { _, now := s.get(); return now > reads && strings.Contains(k.said(), refused.Error()) })
	if k.Authority() != was {
		t.Error("without permission another authority signs")
	}
	if is := keepAgain(t, s, refused); is != nil {
		t.Errorf("without permission %s begins", is)
	}
	s.set(nil, nil)
	eventually(t, "it is written back when it may be", func() bool { now, _ := s.get(); return len(now) > 0 && k.said() == "" })
	if again := keep(t, losing(s)); !again.Authority().cert.Equal(was.cert) {
		t.Errorf("a keeper that starts has %s", again.Authority())
	}
}

// keepAgain starts a keeper that must not start.
func keepAgain(t *testing.T, s Store, want error) *Authority {
	t.Helper()
	o := losing(s)
	o.Now, o.Log = time.Now, keepLog()
	k := NewKeeper(o)
	if err := k.Run(t.Context()); !errors.Is(err, want) {
		t.Errorf("it ends with %v", err)
	}
	if m := k.now.Load(); m != nil {
		return m.authority
	}
	return nil
}

// TestLostFileIsWrittenBack is the same of a state folder: a file that is deleted, emptied, cut off, or replaced by another one, and a folder
// that is gone. The keeper hears of that by itself.
func TestLostFileIsWrittenBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, keptFile)
	o := losing(File{statefile.Dir(dir)})
	k := keep(t, o)
	was := k.Authority()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) func() error {
		return func() error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for what, harm := range map[string]func() error{
		"deleted": func() error { return os.Remove(path) }, "emptied": write(""), "cut off": write(string(content[:len(content)/2])),
		"null": write("null"), "something else": write(`{"a": "b"}`), "the folder is gone": func() error { return os.RemoveAll(dir) },
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		eventually(t, what+", and it is written back", func() bool {
			now, err := os.ReadFile(path)
			public, failed := os.ReadFile(filepath.Join(dir, rootsFile))
			return err == nil && failed == nil && string(now) == string(content) && string(public) == string(was.Roots())
		})
		if k.Authority() != was {
			t.Fatalf("%s: %s signs in the place of %s", what, k.Authority(), was)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a key that others can read is a problem", func() bool { return strings.Contains(k.said(), "other users") })
	if k.Authority() != was {
		t.Error("another authority signs")
	}
}

// TestNewcomerGivesWay: a replica that starts while the Secret is lost makes another root. The one that all proxies trust is written back, and
// the newcomer takes it.
func TestNewcomerGivesWay(t *testing.T) {
	s := &memory{}
	old := keep(t, losing(s))
	was := old.Authority()
	made, err := Roots{Organization: "cluster.local", Valid: 24 * time.Hour}.First(time.Now().Add(time.Second)) // times in certificates have whole seconds
	if err != nil {
		t.Fatal(err)
	}
	newcomer := NewKeeper(losing(&memory{}))
	a, err := NewAuthority(made.Material(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	newcomer.known = &known{is: made, authority: a, at: time.Now(), made: true}
	s.set(made.Data(), nil)
	eventually(t, "the root that is trusted is back", func() bool { now, _ := s.get(); return string(now[keptRoots]) == string(was.Roots()) })
	kept, _ := s.get()
	c, err := newcomer.choose(kept, nil, time.Now())
	if err != nil || c.lost != "" || string(c.is.Cert) != string(kept[keptCert]) {
		t.Errorf("the newcomer keeps %q, because what is stored %s: %v", c.is.Cert, c.lost, err)
	}
	if old.Authority() != was {
		t.Errorf("%s signs", old.Authority())
	}
}

// TestLongAbsence: a keeper that could not read the store for long takes what the others have made of it.
func TestLongAbsence(t *testing.T) {
	o := losing(&memory{})
	now := time.Now()
	first, err := o.Roots.First(now)
	if err != nil {
		t.Fatal(err)
	}
	later, err := o.Roots.First(now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAuthority(first.Material(), now)
	if err != nil {
		t.Fatal(err)
	}
	k := NewKeeper(o)
	k.known = &known{is: first, authority: a, at: now.Add(-o.Roots.Spread)}
	if c, err := k.choose(later.Data(), nil, now); err != nil || c.lost != "" || string(c.is.Cert) != string(later.Cert) {
		t.Errorf("it keeps its own, because what is stored %s: %v", c.lost, err)
	}
}
