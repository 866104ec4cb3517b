package container

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/podrunner/image"
	"github.com/pilotmesh/pilot/test/podrunner/stage"
)

// Identity fills in the user, the groups and the rights of the process.
func Identity(pod *v1.Pod, spec *v1.Container, img image.Image, out *stage.Spec) error {
	own, shared := spec.SecurityContext, pod.Spec.SecurityContext
	if own == nil {
		own = &v1.SecurityContext{}
	}
	if shared == nil {
		shared = &v1.PodSecurityContext{}
	}
	if err := imageUser(img.User, out); err != nil {
		return err
	}
	if id := cmpOr(own.RunAsUser, shared.RunAsUser); id != nil {
		out.User = int(*id)
		if found, err := user.LookupId(strconv.FormatInt(*id, 10)); err == nil {
			out.Group, _ = strconv.Atoi(found.Gid)
		}
	}
	if id := cmpOr(own.RunAsGroup, shared.RunAsGroup); id != nil {
		out.Group = int(*id)
	}
	if must := cmpOr(own.RunAsNonRoot, shared.RunAsNonRoot); must != nil && *must && out.User == 0 {
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", pod.Namespace+"/"+pod.Name, spec.Name)
	}
	groups := []int{out.Group}
	for _, id := range shared.SupplementalGroups {
		groups = append(groups, int(id))
	}
	if shared.FSGroup != nil {
		groups = append(groups, int(*shared.FSGroup))
	}
	slices.Sort(groups)
	out.Groups = slices.Compact(groups)
	out.Privileged = own.Privileged != nil && *own.Privileged
	out.HostDevices = out.Privileged
	out.ReadOnlyRoot = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	out.NoNewPrivs = own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation
	var err error
	out.Capabilities, err = capabilities(own, out.Privileged)
	return err
}

func cmpOr[T any](first, second *T) *T {
	if first != nil {
		return first
	}
	return second
}

// imageUser is the user an image names: a number, a name of this machine, or one of these and a group.
func imageUser(text string, out *stage.Spec) error {
	if text == "" {
		return nil
	}
	name, group, hasGroup := strings.Cut(text, ":")
	id, err := strconv.Atoi(name)
	if err != nil {
		found, err := user.Lookup(name)
		if err != nil {
			return fmt.Errorf("user of the image: %w", err)
		}
		id, _ = strconv.Atoi(found.Uid)
		out.Group, _ = strconv.Atoi(found.Gid)
	}
	out.User = id
	if !hasGroup {
		return nil
	}
	if out.Group, err = strconv.Atoi(group); err != nil {
		found, err := user.LookupGroup(group)
		if err != nil {
			return fmt.Errorf("group of the image: %w", err)
		}
		out.Group, _ = strconv.Atoi(found.Gid)
	}
	return nil
}

// capabilityNames are Linux's, by number.
const capabilityNames = `CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP
	MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`

// Every container has these unless it drops them, as with containerd.
const defaultCapabilities = `CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE
	SYS_CHROOT KILL AUDIT_WRITE`

const allCapabilities = ^uint64(0)

func capabilities(context *v1.SecurityContext, privileged bool) (uint64, error) {
	if privileged {
		return allCapabilities, nil
	}
	set, err := capabilityBits(strings.Fields(defaultCapabilities))
	if err != nil || context.Capabilities == nil {
		return set, err
	}
	drop, err := capabilityBits(context.Capabilities.Drop)
	if err != nil {
		return 0, err
	}
	add, err := capabilityBits(context.Capabilities.Add)
	return set&^drop | add, err
}

func capabilityBits[S ~string](names []S) (uint64, error) {
	all := strings.Fields(capabilityNames)
	var bits uint64
	for _, name := range names {
		wanted := strings.TrimPrefix(strings.ToUpper(string(name)), "CAP_")
		if wanted == "ALL" {
			return allCapabilities, nil
		}
		n := slices.Index(all, wanted)
		if n < 0 {
			return 0, fmt.Errorf("invalid capability %q", name)
		}
		bits |= 1 << n
	}
	return bits, nil
}
