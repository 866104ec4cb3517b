package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
)

// HostPath makes sure that a path of the machine is what the volume says it is.
func HostPath(source *v1.HostPathVolumeSource) error {
	kind := v1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case v1.HostPathDirectoryOrCreate, v1.HostPathUnset:
			return os.MkdirAll(source.Path, 0o755)
		case v1.HostPathFileOrCreate:
			return os.WriteFile(source.Path, nil, 0o644)
		}
		return fmt.Errorf("hostPath type check failed: %s is not there", source.Path)
	}
	if err != nil {
		return fmt.Errorf("hostPath: %w", err)
	}
	mode := info.Mode()
	fits := true
	switch kind {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		fits = mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		fits = mode.IsRegular()
	case v1.HostPathSocket:
		fits = mode&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		fits = mode&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		fits = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	}
	if !fits {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", source.Path, kind)
	}
	return nil
}

// EmptyDir gives a directory to all users, or to the group.
func EmptyDir(dir string, group *int64) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	mode := fs.FileMode(0o777)
	if group != nil {
		if err := os.Chown(dir, 0, int(*group)); err != nil {
			return err
		}
		mode |= fs.ModeSetgid
	}
	return os.Chmod(dir, mode)
}
