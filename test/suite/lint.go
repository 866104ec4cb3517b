package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
)

// lint runs `make lint` if golangci-lint and Vale are built. To build them takes minutes, and they change seldom: without them the step is skipped
// and says how to get them.
func lint(ctx context.Context, dir string, w io.Writer) result {
	built := exec.CommandContext(ctx, "make", "--no-print-directory", "lint-built")
	built.Dir = dir
	if built.Run() != nil && ctx.Err() == nil {
		const why = "golangci-lint or Vale is not built: `make lint` builds both, some minutes, and then runs them"
		fmt.Fprintln(w, "skip lint:", why)
		return result{skipped: []string{"lint: " + why}}
	}
	return command("lint", "", dir, "make", "--no-print-directory", "lint").run(ctx, dir, w)
}
