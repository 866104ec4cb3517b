package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// sweep removes what a cluster leaves on the machine. It is a shell script because it must run when this process no
// longer can. $1 is the prefix of devices, namespaces and cgroups, $2 the nftables table, $3 the data folder.
//
// Every step may find nothing to do, and none may stop the next.
const sweep = `
for c in $(find /sys/fs/cgroup -type d -name "$1*" 2>/dev/null); do
  [ -e "$c/cgroup.kill" ] && echo 1 > "$c/cgroup.kill"
  [ -e "$c/cgroup.procs" ] && for p in $(cat "$c/cgroup.procs"); do kill -9 "$p"; done
done 2>/dev/null
for n in $(ip netns list 2>/dev/null | awk -v p="$1" 'index($1, p) == 1 {print $1}'); do ip netns delete "$n"; done 2>/dev/null
nft delete table inet "$2" 2>/dev/null
for l in $(ip -o link show 2>/dev/null | awk -F': ' -v p="$1" '{sub(/@.*/, "", $2); if (index($2, p) == 1) print $2}'); do ip link delete "$l"; done 2>/dev/null
if [ -n "$3" ]; then
  for i in 1 2 3; do
    awk -v d="$3/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r m; do umount -l "$m"; done
    rm -rf --one-file-system -- "$3" && break
  done 2>/dev/null
fi
for i in $(seq 50); do # a killed process takes a moment to leave its group
  left=$(find /sys/fs/cgroup -type d -name "$1*" -prune 2>/dev/null)
  [ -z "$left" ] && break
  for c in $left; do find "$c" -depth -type d -exec rmdir {} \;; [ -e "$c" ] && sleep 0.1; done 2>/dev/null
done
true
`

// reaper waits, in a process of its own, until this one has ended, and then sweeps. It is not in this process's group, so
// that what ends this one at the terminal does not end it.
type reaper struct {
	cmd  *exec.Cmd
	pipe *os.File // the reaper starts its work when this closes
}

func startReaper(s slot, dir string) (*reaper, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", "trap '' INT TERM HUP; read -r word; "+sweep, "pilot-cluster-reaper", s.device(), s.table(), dir)
	cmd.Stdin = read
	cmd.ExtraFiles = []*os.File{s.hold} // the slot is free when all is swept
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	return &reaper{cmd: cmd, pipe: write}, nil
}

// close lets the reaper sweep, whatever this process has removed itself already, and waits for it.
func (r *reaper) close() error {
	if err := r.pipe.Close(); err != nil {
		return fmt.Errorf("notifying the reaper: %w", err)
	}
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("the reaper: %w", err)
	}
	return nil
}

// sweepNow removes what an earlier cluster of this slot left, if its reaper was killed as well.
func sweepNow(s slot) error {
	if out, err := exec.Command("/bin/sh", "-c", sweep, "pilot-cluster-sweep", s.device(), s.table(), "").CombinedOutput(); err != nil {
		return fmt.Errorf("removing what an earlier cluster left: %w\n%s", err, out)
	}
	return nil
}
