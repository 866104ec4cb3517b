package binaries

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// commands are programs of the system that nodes need, and the Debian packages that hold them.
var commands = []struct{ program, debian string }{{"ip", "iproute2"}, {"iptables", "iptables"}, {"nft", "nftables"}}

// Missing names the Debian packages that are missing on this machine.
func Missing() []string {
	var missing []string
	for _, c := range commands {
		if _, err := exec.LookPath(c.program); err != nil {
			missing = append(missing, c.debian)
		}
	}
	return missing
}

// Install installs missing packages where it may and can; where it may not, it prints the commands that remain. It is no error if it
// cannot: the control plane alone runs without them.
func Install(ctx context.Context, w io.Writer) {
	missing := Missing()
	if len(missing) == 0 {
		return
	}
	list := strings.Join(missing, " ")
	apt, err := exec.LookPath("apt-get")
	if os.Geteuid() != 0 || err != nil {
		fmt.Fprintf(w, "tools: missing: %s; nodes need them: install them (Debian: sudo apt-get install -y %s)\n", list, list)
		return
	}
	fmt.Fprintf(w, "tools: installing %s\n", list)
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(w, "tools: apt-get %s failed (%v): nodes will not run until %s are installed\n%s", args[0], err, list, out)
			return
		}
	}
}
