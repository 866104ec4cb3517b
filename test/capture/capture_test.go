package capture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/capture/casefile"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// inside is the first argument of the test program when it has to become a command in a workload.
const inside = "inside-a-workload"

// backends are what the cases run with. Cases that name a back end run once, with the first.
var backends = []backend{
	{name: "nft", tools: "nft"},
	{name: "legacy", tools: "legacy"},
	{name: "native", tools: "nft", flags: []string{"--native-nftables"}},
}

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == inside {
		fmt.Fprintln(os.Stderr, become(os.Args[2], os.Args[3], os.Args[4:]))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// become puts the files of a case in place, and becomes the command.
func become(dir, uid string, argv []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, name := range []string{"etc/passwd", "etc/group", "etc/resolv.conf", "run"} {
		if err := unix.Mount(filepath.Join(dir, name), "/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	name, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	id, err := strconv.Atoi(uid)
	if err == nil && id != 0 {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(id), syscall.Setuid(id))
	}
	if err != nil {
		return err
	}
	return unix.Exec(name, argv, os.Environ())
}

// missing names the right or program that this machine needs to run the cases, or returns "".
func missing() string {
	if os.Geteuid() != 0 {
		return "needs root (network namespaces, rules)"
	}
	for _, t := range []struct{ program, in string }{
		{"ip", "iproute2"}, {"nft", "nftables"}, {"iptables-nft", "iptables"}, {"iptables-legacy", "iptables"},
	} {
		if lookup(t.program) == "" {
			return "needs `" + t.program + "` (Debian: apt-get install -y " + t.in + ")"
		}
	}
	// The kernel may not have the features that the programs configure, or a container may not use them.
	for name, command := range map[string]string{
		"iptables of the variant nft":    "iptables-nft -t nat -A OUTPUT -p tcp -m owner --uid-owner 1 -j REDIRECT --to-ports 1",
		"iptables of the variant legacy": "iptables-legacy -t nat -A OUTPUT -p tcp -m owner --uid-owner 1 -j REDIRECT --to-ports 1",
		"nftables":                       "nft add table inet a && nft add chain inet a b '{ type nat hook output priority -100; }' && nft add rule inet a b tcp dport 1 redirect to :1",
		"IPv6":                           "ip addr add fd76::2/64 dev lo",
	} {
		cmd := exec.Command("/bin/sh", "-c", command)
		cmd.Env = []string{"PATH=" + fullPath}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Sprintf("needs %s in the kernel: %v: %s", name, err, strings.Join(strings.Fields(string(out)), " "))
		}
	}
	return ""
}

// build builds the agent.
func build(t *testing.T) string {
	t.Helper()
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the proxy's user runs the agent, too
		t.Fatal(err)
	}
	agent, err := testbed.Build(t.Context(), root, "pilot-agent", dir)
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

// TestCases runs every case with every back end: which process receives a connection, and the addresses that it sees. `go test ./capture -run
// 'Cases/nft/dns' -v` runs one family with one of them.
func TestCases(t *testing.T) {
	cases, err := casefile.Load("cases")
	if err != nil {
		t.Fatal(err)
	}
	if why := missing(); why != "" {
		t.Skip(why)
	}
	debug.SetMaxThreads(20_000)
	agent := build(t)
	for i, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range cases {
				if c.Once && i > 0 {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					play(t, c, b, agent)
				})
			}
		})
	}
}
