package permission

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// fixture is a keeper whose batches go into tables. The way through a real API server is tested in test/cluster/kubesource.
type fixture struct {
	*Keeper
	tables *state.Tables
	read   []string // the Secrets that are read
}

// Apply implements source.Sink.
func (f *fixture) Apply(b source.Batch) {
	tx := f.tables.DB.Begin()
	f.tables.Apply(tx, b)
	tx.Commit()
}

func newFixture() *fixture {
	f := &fixture{tables: state.New(state.Options{})}
	f.Keeper = &Keeper{Sink: f, Cluster: "own", Log: slog.New(slog.DiscardHandler)}
	f.prepare()
	f.Want = func(keys []api.Key) {
		f.read = nil
		for _, k := range keys {
			of := map[string]string{kube.KindSecret: "", kube.KindConfigMap: "ConfigMap "}[k.Kind]
			f.read = append(f.read, of+k.Namespace+"/"+k.Name)
		}
	}
	return f
}

// ask makes accounts ask for secrets: "NAMESPACE/ACCOUNT NAME".
func (f *fixture) ask(lines ...string) {
	f.asked.asked = omap.Map[connected.Asked, omap.Unit]{}
	for _, line := range lines {
		who, name, _ := strings.Cut(line, " ")
		namespace, account, _ := strings.Cut(who, "/")
		f.asked.asked = omap.With(f.asked.asked, omap.Put(connected.Asked{
			ResourceKey: connected.ResourceKey{Type: uint8(resource.Secret), Name: name}, By: connected.Account{Namespace: namespace, Name: account},
		}, omap.Unit{}))
	}
	f.follow(f.asked)
}

func (f *fixture) answer(of connected.Account, allowed bool, err error) {
	if e := f.requests.Wanted[of]; e != nil {
		f.done(of, &e.State, allowed, err)
	}
}

func (f *fixture) told(of connected.Account) string {
	p, ok := f.tables.Kube.SecretReaders.Peek(of)
	return fmt.Sprintf("%t %t %s", ok, p.Allowed, p.Trouble)
}

// TestOnlyWhatMayBeRead checks that Secrets are read while an account asks for them that may, and no others.
func TestOnlyWhatMayBeRead(t *testing.T) {
	f, web, db := newFixture(), connected.Account{Namespace: "shop", Name: "web"}, connected.Account{Namespace: "shop", Name: "db"}
	f.ask("shop/web kubernetes://a", "shop/web kubernetes://a-cacert", "shop/web kubernetes://depot/x", "shop/web default", "shop/db kubernetes://shop/b")
	if f.read != nil || f.told(web) != "false false " {
		t.Errorf("before the first answer %q is read, and the account may: %s", f.read, f.told(web))
	}
	f.answer(web, true, nil)
	f.answer(db, false, nil)
	if want := []string{"shop/a", "shop/a-cacert"}; !slices.Equal(f.read, want) || f.told(web) != "true true " || f.told(db) != "true false " {
		t.Errorf("read: %q, web %s, db %s", f.read, f.told(web), f.told(db))
	}
	f.answer(db, true, nil)
	f.answer(web, false, nil)
	if want := []string{"shop/b"}; !slices.Equal(f.read, want) {
		t.Errorf("read: %q", f.read)
	}
	f.ask("shop/web kubernetes://a")
	if f.read != nil || f.told(db) != "false false " {
		t.Errorf("nobody who may asks any more; read: %q, db %s", f.read, f.told(db))
	}
	f.answer(db, true, nil) // an answer that comes too late
	if f.read != nil || f.told(db) != "false false " {
		t.Errorf("a late answer counts: %q, %s", f.read, f.told(db))
	}
}

// TestPullSecrets checks that the pull secrets of extensions are read although no account asks for them, and no longer than an extension names them.
func TestPullSecrets(t *testing.T) {
	f := newFixture()
	f.asked.pulls = omap.With(f.asked.pulls, omap.Put(api.Key{Namespace: "shop", Name: "credentials"}, omap.Unit{}))
	f.follow(f.asked)
	if want := []string{"shop/credentials"}; !slices.Equal(f.read, want) {
		t.Errorf("read: %q, want %q", f.read, want)
	}
	f.asked.pulls = omap.Map[api.Key, omap.Unit]{}
	f.follow(f.asked)
	if len(f.read) > 0 {
		t.Errorf("no extension names a Secret any more; read: %q", f.read)
	}
}

// TestConfigMaps checks that ConfigMaps are read without a question about the account: of the namespace of the proxy, and of others while a
// DestinationRule beside the ConfigMap names it. A proxy without identity has none read, and a name of a certificate with its key means none.
func TestConfigMaps(t *testing.T) {
	f := newFixture()
	lines := []string{
		"shop/web configmap://shop/roots-cacert", "shop/db configmap://shop/roots-cacert", "shop/web configmap://shop/pair", "shop/web configmap://roots-cacert",
		"edge/gateway configmap://depot/roots-cacert", "edge/gateway configmap://depot/other-cacert", "/ configmap://depot/nobody-cacert",
	}
	f.ask(lines...)
	if want := []string{"ConfigMap shop/roots"}; !slices.Equal(f.read, want) {
		t.Errorf("read: %q, want %q", f.read, want)
	}
	f.asked.named = omap.With(f.asked.named, omap.Put(omap.Name("configmap://depot/roots"), omap.Unit{}))
	f.ask(lines...)
	if want := []string{"ConfigMap depot/roots", "ConfigMap shop/roots"}; !slices.Equal(f.read, want) {
		t.Errorf("a rule names one; read: %q, want %q", f.read, want)
	}
	f.ask()
	if len(f.read) > 0 || len(f.requests.Wanted) > 0 {
		t.Errorf("nobody asks any more; read: %q", f.read)
	}
}

// TestUnknown checks that no account may read Secrets before an answer, and that a last answer counts for a bounded time.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, web := newFixture(), connected.Account{Namespace: "shop", Name: "web"}
		f.ask("shop/web kubernetes://a")
		f.answer(web, false, errors.New("away"))
		if f.told(web) != "true false away" {
			t.Errorf("without an answer: %s", f.told(web))
		}
		f.answer(web, true, nil)
		<-time.After(staleFor)
		f.answer(web, false, errors.New("away"))
		if f.told(web) != "true true " || len(f.read) != 1 {
			t.Errorf("the last answer does not count: %s, read %q", f.told(web), f.read)
		}
		<-time.After(time.Second)
		f.answer(web, false, errors.New("away"))
		if f.told(web) != "true false away" || f.read != nil {
			t.Errorf("the last answer counts for ever: %s, read %q", f.told(web), f.read)
		}
	})
}

// TestTooMany checks that one account cannot have all Secrets read that there may be.
func TestTooMany(t *testing.T) {
	f, web := newFixture(), connected.Account{Namespace: "shop", Name: "web"}
	var lines []string
	for i := range maxOfAccount + 10 {
		lines = append(lines, fmt.Sprintf("shop/web kubernetes://n%d", i))
	}
	f.ask(lines...)
	f.answer(web, true, nil)
	if problems, _ := f.tables.SourceProblems.Peek(Name); len(f.read) != maxOfAccount || problems.Len() != 1 {
		t.Errorf("%d are read, with %d problems", len(f.read), problems.Len())
	}
	f.ask(lines[:2]...)
	if problems, _ := f.tables.SourceProblems.Peek(Name); len(f.read) != 2 || problems.Len() != 0 {
		t.Errorf("%d are read, with %d problems", len(f.read), problems.Len())
	}
}

// TestShareOfSecrets checks that a namespace whose proxies ask for many Secrets keeps none from being read that others had, or that are
// within their share, and that the problem names the namespace.
func TestShareOfSecrets(t *testing.T) {
	f := newFixture()
	ask := func(namespace, account string, count int) (lines []string) {
		for i := range count {
			lines = append(lines, fmt.Sprintf("%s/%s kubernetes://%s-%d", namespace, account, account, i))
		}
		return lines
	}
	bank := ask("bank", "gateway", maxOfAccount)
	bank = append(bank, ask("bank", "other", 20)...) // more than its share
	f.ask(bank...)
	f.answer(connected.Account{Namespace: "bank", Name: "gateway"}, true, nil)
	f.answer(connected.Account{Namespace: "bank", Name: "other"}, true, nil)
	lines := slices.Concat(bank, ask("zoo", "late", shareOfSecrets))
	for i := range 2 * maxSecrets / maxOfAccount {
		lines = append(lines, ask("aaa", fmt.Sprintf("a%02d", i), maxOfAccount)...)
	}
	f.ask(lines...)
	for i := range 2 * maxSecrets / maxOfAccount {
		f.answer(connected.Account{Namespace: "aaa", Name: fmt.Sprintf("a%02d", i)}, true, nil)
	}
	f.answer(connected.Account{Namespace: "zoo", Name: "late"}, true, nil)
	counts := map[string]int{}
	for _, key := range f.read {
		namespace, _, _ := strings.Cut(key, "/")
		counts[namespace]++
	}
	if len(f.read) != maxSecrets || counts["bank"] != len(bank) || counts["zoo"] != shareOfSecrets {
		t.Errorf("read: %v", counts)
	}
	problems, _ := f.tables.SourceProblems.Peek(Name)
	text := ""
	for _, p := range problems.All() {
		text += p.Reason
	}
	if problems.Len() != 1 || !strings.Contains(text, "namespace aaa") {
		t.Errorf("%d problems: %s", problems.Len(), text)
	}
}
