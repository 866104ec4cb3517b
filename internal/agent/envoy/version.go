package envoy

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Supported minors of Envoy 1, both ends included.
const (
	oldestMinor = 37
	newestMinor = 40
)

// patience is how long a binary may take to tell its version: a moment, once it is in memory.
const patience = 5 * time.Second

// versionLine is "envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
var versionLine = regexp.MustCompile(`version: [0-9a-f]+/(1\.(\d+)\.\d+[^/]*)/`)

// Check asks a binary for its version. It is an error if the binary does not run here or is too old for what the control
// plane tells it; one that is newer than what was tried, or does not tell in time, gets a remark.
func Check(ctx context.Context, binary string) (version, remark string, err error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(limited, binary, "--version").CombinedOutput()
	if limited.Err() != nil && ctx.Err() == nil {
		// The host is busy. That is no reason not to start: what does not fit shows soon enough.
		return "unknown", fmt.Sprintf("%s did not tell its version within %s", binary, patience), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("%s does not run on this host: %w: %.300s", binary, err, strings.TrimSpace(string(out)))
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return "", "", fmt.Errorf("%s is no Envoy 1.%d or newer: asked for its version, it says %.300q; name another by --envoy=FILE or in $ENVOY",
			binary, oldestMinor, strings.TrimSpace(string(out)))
	}
	version = string(m[1])
	minor, _ := strconv.Atoi(string(m[2])) // digits
	switch {
	case minor < oldestMinor:
		return version, "", fmt.Errorf("%s is Envoy %s, which is too old: 1.%d to 1.%d are supported; name another by --envoy=FILE or in $ENVOY",
			binary, version, oldestMinor, newestMinor)
	case minor > newestMinor:
		remark = fmt.Sprintf("Envoy %s is newer than what was tried: 1.%d to 1.%d are supported", version, oldestMinor, newestMinor)
	}
	return version, remark, nil
}
