package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// root builds the container's tree and makes it "/". Kernel file systems are mounted here because /proc shows the PID
// namespace, and /sys the network namespace, of the process that mounts it.
func root(spec *Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if spec.HostDevices {
		devices, err := unix.OpenTree(unix.AT_FDCWD, "/dev", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("open the machine's /dev: %w", err)
		}
		spec.Mounts = append([]Mount{{FD: devices, Target: "/dev"}}, spec.Mounts...)
	}
	if err := place(spec.Root, spec.Base); err != nil {
		return fmt.Errorf("mount the root on %s: %w", spec.Base, err)
	}
	if err := os.Chdir(spec.Base); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := kernelMounts(spec); err != nil {
		return err
	}
	// pivot_root(".", ".") stacks the old root on the new one; what lies on top is then taken off.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	for _, mount := range spec.Mounts {
		if err := attach(mount); err != nil {
			return fmt.Errorf("mount %s: %w", mount.Target, err)
		}
	}
	if spec.ReadOnlyRoot {
		if err := readOnly("/"); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	return nil
}

func kernelMounts(spec *Spec) error {
	const plain = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	for _, dir := range []string{"proc", "sys", "dev", "tmp"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", dir, err)
		}
	}
	if err := unix.Mount("proc", "proc", "proc", plain, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	sys := uintptr(plain)
	if !spec.Privileged {
		sys |= unix.MS_RDONLY
		// The kernel's settings are the machine's, not the container's.
		if err := unix.Mount("proc/sys", "proc/sys", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /proc/sys: %w", err)
		}
		if err := readOnly("proc/sys"); err != nil {
			return fmt.Errorf("make /proc/sys read-only: %w", err)
		}
	}
	if err := unix.Mount("sysfs", "sys", "sysfs", sys, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if spec.HostDevices {
		return nil
	}
	return devices()
}

// devices fills /dev with what every container may expect.
func devices() error {
	if err := unix.Mount("tmpfs", "dev", "tmpfs", unix.MS_NOSUID, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, device := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		path := "dev/" + device.name
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(device.major, device.minor))); err != nil {
			return fmt.Errorf("make /%s: %w", path, err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // the umask had its say
			return fmt.Errorf("make /%s: %w", path, err)
		}
	}
	for _, dir := range []string{"dev/pts", "dev/shm", "dev/mqueue"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", dir, err)
		}
	}
	options := "newinstance,ptmxmode=0666,mode=0620"
	if err := unix.Mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	for link, to := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, "dev/"+link); err != nil {
			return fmt.Errorf("make /dev/%s: %w", link, err)
		}
	}
	return nil
}

func place(fd int, target string) error {
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
}

// attach makes the place and mounts there.
func attach(mount Mount) error {
	if err := os.MkdirAll(filepath.Dir(mount.Target), 0o755); err != nil {
		return err
	}
	info, err := os.Stat(mount.Target)
	if errors.Is(err, fs.ErrNotExist) {
		// The place may also be a link that leads nowhere in this root, as /etc/resolv.conf on many machines.
		if err := os.Remove(mount.Target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if mount.File {
			return errors.Join(os.WriteFile(mount.Target, nil, 0o644), place(mount.FD, mount.Target))
		}
		return errors.Join(os.Mkdir(mount.Target, 0o755), place(mount.FD, mount.Target))
	}
	if err != nil {
		return err
	}
	if info.IsDir() == mount.File {
		return fmt.Errorf("a directory and a file cannot be mounted on each other")
	}
	return place(mount.FD, mount.Target)
}

func readOnly(path string) error {
	return unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}
