package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestShort is one round of what `make chaos` does for ten minutes.
func TestShort(t *testing.T) {
	o := options{length: time.Second, seed: rand.Uint64()>>32 | 1, envoys: 2}
	if err := run(t.Context(), o, t.Output()); err != nil {
		t.Fatal(err)
	}
}

// TestDrawnFilesAreValid: what is drawn as valid is; what is drawn as broken is not always.
func TestDrawnFilesAreValid(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for range 500 {
		text := newFiles().content(r)
		for _, d := range api.Decode("drawn.yaml", []byte(text)) {
			d.Check()
			if api.Failed(d.Problems) {
				t.Fatalf("%v\n%s", d.Problems, text)
			}
		}
		for _, d := range api.Decode("broken.yaml", []byte(broken(r, text))) {
			d.Check()
			if api.Failed(d.Problems) {
				refused++
			}
		}
	}
	if refused < 250 {
		t.Errorf("%d of 500 broken files are refused", refused)
	}
}
