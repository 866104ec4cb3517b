package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/netns"
)

// patience is how long the commands of one page may take on a busy machine.
const patience = 3 * time.Minute

// outcome is the real output of a step, and its exit code.
type outcome struct {
	output []string
	code   int
}

// script returns the commands of a page as one script of bash, so that variables, folders and programs in the background remain from block to block.
// It prints a mark before each command and behind the last one, with the exit code of the command before. Files that the page shows are written
// where the page shows them.
func script(blocks []block) (text string, steps []step, err error) {
	var b strings.Builder
	// The function returns the code that it has found, so that $? has the meaning that it has for a reader.
	b.WriteString("mark() { local code=$?; printf '\\n\\036%s\\n' \"$code\"; return \"$code\"; }\n")
	for _, one := range blocks {
		if name := one.file(); name != "" {
			fmt.Fprintf(&b, "mkdir -p \"$(dirname %s)\"; cat > %s <<'END_OF_PAGE'\n%s\nEND_OF_PAGE\n", name, name, strings.Join(one.lines, "\n"))
		}
		if one.lang != "console" || one.mark != "" {
			continue
		}
		list, err := one.steps()
		if err != nil {
			return "", nil, err
		}
		for _, s := range list {
			b.WriteString("mark\n" + s.command + "\n")
		}
		steps = append(steps, list...)
	}
	b.WriteString("mark\n")
	return b.String(), steps, nil
}

var marked = regexp.MustCompile("\n\x1e([0-9]+)\n")

// outcomes splits the output of a script.
func outcomes(output string) []outcome {
	var list []outcome
	marks := marked.FindAllStringSubmatchIndex(output, -1)
	for i := 1; i < len(marks); i++ {
		var o outcome
		o.code, _ = strconv.Atoi(output[marks[i][2]:marks[i][3]]) // the pattern has digits only
		if text := strings.TrimSuffix(output[marks[i-1][1]:marks[i][0]], "\n"); text != "" {
			o.output = strings.Split(text, "\n")
		}
		list = append(list, o)
	}
	return list
}

// run runs a script in a folder with the programs and the samples, and in a network namespace of its own, so that the ports of the pages are free.
// The result is the output of all commands.
func (p programs) run(t *testing.T, text string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "docs-") // short: paths of sockets are bounded
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.CopyFS(filepath.Join(dir, "samples"), os.DirFS(filepath.Join(p.root, "samples"))))
	must(t, os.Symlink(p.bin, filepath.Join(dir, "bin")))
	space, err := netns.New()
	if err != nil {
		t.Skipf("a network namespace of its own needs root: %v", err)
	}
	defer space.Close()
	must(t, space.IP("link set lo up"))

	out, err := os.Create(filepath.Join(dir, ".output"))
	must(t, err)
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", text)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = []string{"PATH=" + p.bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8", "TMPDIR=" + dir, "ENVOY=" + p.envoy}
	// Programs in the background are members of the group, and end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	cmd.Cancel = func() error { return end(syscall.SIGKILL) }
	space.Do(-1, -1, func() { err = cmd.Run() })
	if cmd.Process != nil {
		_ = end(syscall.SIGTERM) // nothing may be left
		defer func() { _ = end(syscall.SIGKILL) }()
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	printed, err := os.ReadFile(out.Name())
	must(t, err)
	if ctx.Err() != nil {
		t.Fatalf("the commands of the page have not ended after %v; their output:\n%s", patience, printed)
	}
	return string(printed)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
