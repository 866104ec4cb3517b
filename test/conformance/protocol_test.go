package conformance

import (
	"testing"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// rule is one row of the suite.
type rule struct {
	name string
	run  func(*scene)

	only []client.Variant // nil: both
	wish bool             // good, but not demanded
	own  bool             // it needs a control plane of its own: it stops it, or would disturb others
	bare bool             // without the services that every scene begins with
}

// family is a group of rules.
type family struct {
	name   string
	rules  []rule
	serial bool // its rules measure, or hurt: they run alone and one after the other
}

// families lists all rules.
func families() []family {
	return []family{
		{name: "load", rules: loadRules(), serial: true},
		{name: "hostile", rules: hostileRules()},
		{name: "lifecycle", rules: lifecycleRules()},
		{name: "first", rules: firstRules()},
		{name: "nonce", rules: nonceRules()},
		{name: "nack", rules: nackRules()},
		{name: "version", rules: versionRules()},
		{name: "unsubscribe", rules: unsubscribeRules()},
		{name: "wildcard", rules: wildcardRules()},
		{name: "removal", rules: removalRules()},
		{name: "resume", rules: resumeRules()},
		{name: "streams", rules: streamsRules()},
		{name: "isolation", rules: isolationRules()},
		{name: "order", rules: orderRules()},
		{name: "cost", rules: costRules()},
		{name: "converge", rules: convergeRules()},
		{name: "content", rules: contentRules()},
	}
}

// gaps are wishes that are not fulfilled, and why. Rules that are demanded have no place here.
func gaps() map[string]string {
	return map[string]string{
		"cost/burst": "what is edited every 10 ms is distributed as it comes, so that nobody is 50 ms behind; only what comes faster is joined (burst-at-once)",
	}
}

// onlyDelta and onlySotW are the variants of rules that the other variant has no words for.
func onlyDelta() []client.Variant { return []client.Variant{client.Delta} }
func onlySotW() []client.Variant  { return []client.Variant{client.SotW} }

// TestProtocol runs every rule in every variant it has.
func TestProtocol(t *testing.T) {
	shared := newServer(t)
	shared.start()
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			if !f.serial {
				t.Parallel()
			}
			for _, r := range f.rules {
				t.Run(r.name, func(t *testing.T) {
					if !f.serial {
						t.Parallel()
					}
					variants := r.only
					if variants == nil {
						variants = []client.Variant{client.Delta, client.SotW}
					}
					for _, v := range variants {
						t.Run(v.String(), func(t *testing.T) {
							if why, ok := gaps()[f.name+"/"+r.name]; ok && r.wish {
								t.Skip("a known gap: " + why)
							}
							if !f.serial {
								t.Parallel()
							}
							r.run(newScene(t, f.name, r, v, shared))
						})
					}
				})
			}
		})
	}
}

// TestGaps keeps the table of gaps honest: it names wishes only.
func TestGaps(t *testing.T) {
	wishes := map[string]bool{}
	for _, f := range families() {
		for _, r := range f.rules {
			wishes[f.name+"/"+r.name] = r.wish
		}
	}
	for name := range gaps() {
		if !wishes[name] {
			t.Errorf("%s is no wish: it cannot be a known gap", name)
		}
	}
}
