package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
)

// lint runs `make lint` if the linter is built. To build it takes minutes, and it changes seldom: without a linter the step is skipped and says how
// to get one.
func lint(ctx context.Context, dir string, w io.Writer) result {
	built := exec.CommandContext(ctx, "make", "--no-print-directory", "lint-built")
	built.Dir = dir
	if built.Run() != nil && ctx.Err() == nil {
		const why = "golangci-lint is not built: `make lint` builds it, some minutes, and then runs it"
		fmt.Fprintln(w, "skip lint:", why)
		return result{skipped: []string{"lint: " + why}}
	}
	return command("lint", "", dir, "make", "--no-print-directory", "lint").run(ctx, dir, w)
}
