package envoy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Supported minor versions of Envoy 1.
const (
	oldestMinor = 37
	newestMinor = 40
)

// versionTimeout is how long a binary may take to print its version. It takes a moment once the binary is in memory.
const versionTimeout = 5 * time.Second

// versionLine matches the output "envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
var versionLine = regexp.MustCompile(`version: [0-9a-f]+/(1\.(\d+)\.\d+[^/]*)/`)

// Check runs the binary to get its version. It returns an error if the binary cannot run or is too old for the control plane's
// configuration, and a remark if it is newer than the tested versions or does not answer in time.
func Check(ctx context.Context, binary string) (version, remark string, err error) {
	limited, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(limited, binary, "--version").CombinedOutput()
	if limited.Err() != nil && ctx.Err() == nil {
		// The host is busy, which is no reason not to start. With an unsuitable version, Envoy soon fails.
		return "unknown", fmt.Sprintf("%s did not print its version within %s", binary, versionTimeout), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("%s does not run on this host: %w: %.300s", binary, err, strings.TrimSpace(string(out)))
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return "", "", fmt.Errorf("%s is not Envoy 1.%d or newer: the output of --version is %.300q; set another binary with --envoy=FILE or $ENVOY",
			binary, oldestMinor, strings.TrimSpace(string(out)))
	}
	version = string(m[1])
	minor, _ := strconv.Atoi(string(m[2])) // the expression matches digits only
	switch {
	case minor < oldestMinor:
		return version, "", fmt.Errorf("%s is Envoy %s, which is too old: 1.%d to 1.%d are supported; set another binary with --envoy=FILE or $ENVOY",
			binary, version, oldestMinor, newestMinor)
	case minor > newestMinor:
		remark = fmt.Sprintf("Envoy %s is newer than the tested versions 1.%d to 1.%d", version, oldestMinor, newestMinor)
	}
	return version, remark, nil
}

// validationTimeout is how long Envoy may take to check a bootstrap. It takes a tenth of a second.
const validationTimeout = 20 * time.Second

// Validate runs the binary to check a bootstrap. Its error has Envoy's message.
func Validate(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, validationTimeout)
	defer cancel()
	o.HotRestart = nil
	cmd := exec.CommandContext(ctx, o.Binary, append(o.Args(), "--mode", "validate")...)
	if o.Text != "" {
		file, err := inMemory(o.Text)
		if err != nil {
			return fmt.Errorf("the bootstrap cannot be kept in memory: %w", err)
		}
		defer file.Close()
		cmd.ExtraFiles = []*os.File{file}
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%w: %.1000s", err, lines[len(lines)-1])
}
