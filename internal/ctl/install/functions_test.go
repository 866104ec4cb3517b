package install

import "testing"

// TestMissingArguments checks that no function of templates panics when it gets too few arguments: a panic would end the program without a place.
func TestMissingArguments(t *testing.T) {
	for name, f := range functions() {
		for _, args := range [][]any{nil, {nil}, {"a"}, {1, "a"}, {map[string]any{}, "a"}} {
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s of %v: %v", name, args, p)
					}
				}()
				_, _ = f(args...)
			}()
		}
	}
	if _, err := functions()["ternary"]("yes", "no"); err == nil {
		t.Error("ternary without a condition has no error")
	}
}
