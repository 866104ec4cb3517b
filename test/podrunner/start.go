package podrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/pilotmesh/pilot/test/podrunner/container"
	"github.com/pilotmesh/pilot/test/podrunner/image"
	"github.com/pilotmesh/pilot/test/podrunner/logs"
	"github.com/pilotmesh/pilot/test/podrunner/pod"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
	"github.com/pilotmesh/pilot/test/podrunner/stage"
)

// start starts a life of a container, and reports the result to the machine.
func (w *worker) start(name pod.Container) {
	select {
	case w.node.starts <- struct{}{}:
		defer func() { <-w.node.starts }()
	case <-w.ctx.Done():
		return
	}
	object := w.pod()
	spec := find(object, name.Name)
	img, failure := w.image(spec)
	if failure != nil {
		w.post(pod.StartFailed{Container: name, Failure: *failure})
		return
	}
	announced := make(chan struct{}) // the end of a container must not overtake its beginning
	defer close(announced)
	if err := w.startLife(object, spec, name, img, announced); err != nil {
		failure := pod.Failure{Cause: pod.NotCreated, Message: err.Error()}
		if bad, ok := errors.AsType[*badConfigError](err); ok {
			failure = pod.Failure{Cause: pod.BadConfig, Message: bad.Error()}
		} else if _, ok := errors.AsType[*stage.StartError](err); ok {
			failure = pod.Failure{Cause: pod.NotRunnable, Message: err.Error()}
		}
		w.post(pod.StartFailed{Container: name, Failure: failure})
		return
	}
	w.post(pod.Started{Container: name, ID: "podrunner://" + w.id(name), Image: spec.Image, ImageID: "podrunner://" + cmp.Or(img.Program, img.Name, img.Prefix)})
}

// badConfigError is an error of what a container refers to.
type badConfigError struct{ error }

// id names a life of a container on the machine.
func (w *worker) id(name pod.Container) string {
	return fmt.Sprintf("%s-%s-%d", w.uid, name.Name, name.Life)
}

// find returns the definition of a container; the machine names none that is not there.
func find(object *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{object.Spec.InitContainers, object.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range object.Spec.EphemeralContainers {
		if object.Spec.EphemeralContainers[i].Name == name {
			return (*v1.Container)(&object.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
	}
	return &v1.Container{Name: name}
}

func (w *worker) image(spec *v1.Container) (image.Image, *pod.Failure) {
	img, err := w.node.options.Images.Find(spec.Image)
	switch {
	case errors.Is(err, image.ErrInvalid):
		return img, &pod.Failure{Cause: pod.BadImage, Message: err.Error()}
	case err != nil && spec.ImagePullPolicy == v1.PullNever:
		return img, &pod.Failure{Cause: pod.NeverImage, Message: fmt.Sprintf("Container image %q is not present with pull policy of Never", spec.Image)}
	case err != nil:
		return img, &pod.Failure{Cause: pod.NoImage, Message: err.Error()}
	}
	return img, nil
}

// place is the directory of a container.
func (w *worker) place(name string) string { return filepath.Join(w.dir, "containers", name) }

func (w *worker) logPath(name string, life int) string {
	return filepath.Join(w.place(name), strconv.Itoa(life)+".log")
}

func (w *worker) startLife(object *v1.Pod, spec *v1.Container, name pod.Container, img image.Image, announced <-chan struct{}) error {
	box := w.sandbox()
	if box == nil {
		return errors.New("the pod has no sandbox")
	}
	ctx, cancel := context.WithTimeout(w.ctx, syncTimeout)
	defer cancel()
	process, err := container.Spec(w.facts(object), spec, img, w.node.objects.In(ctx, object.Namespace))
	if err != nil {
		return &badConfigError{err}
	}
	dir := filepath.Join(w.place(spec.Name), strconv.Itoa(name.Life))
	w.remove(dir) // of an attempt that failed
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mounts, err := w.mounts(spec, img, process.Env, dir)
	if err != nil {
		closeAll(mounts)
		return err
	}
	root, err := sandbox.Overlay("/", dir)
	if err != nil {
		closeAll(mounts)
		return err
	}
	log, err := logs.Create(w.logPath(spec.Name, name.Life))
	if err != nil {
		closeAll(mounts)
		return errors.Join(err, root.Close())
	}
	current := &life{number: name.Life, log: log, spec: process, signal: stopSignal(spec, img)}
	started, err := box.Start(sandbox.ProcessConfig{
		ID: w.id(name), Spec: process, Root: root, Mounts: mounts, Input: spec.Stdin, Terminal: spec.TTY, HostPID: object.Spec.HostPID,
		Limits: limits(spec),
		Output: func(stream string, from io.Reader) { log.Copy(stream, from) },
		Ended:  func(exit sandbox.Exit) { w.lifeEnded(spec, name, log, dir, exit, announced) },
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	w.mu.Lock()
	current.process = started
	w.lives[spec.Name] = current
	w.mu.Unlock()
	w.removeOld(spec.Name, name.Life)
	return nil
}

// removeOld removes the files of lives older than the one before this.
func (w *worker) removeOld(name string, current int) {
	if old := current - 2; old >= 0 {
		w.remove(w.logPath(name, old))
	}
}

func limits(spec *v1.Container) sandbox.Limits {
	return sandbox.Limits{Memory: spec.Resources.Limits.Memory().Value(), MilliCPU: spec.Resources.Limits.Cpu().MilliValue()}
}

// stopSignal is what ends the container gently.
func stopSignal(spec *v1.Container, img image.Image) syscall.Signal {
	name := img.StopSignal
	if l := spec.Lifecycle; l != nil && l.StopSignal != nil {
		name = string(*l.StopSignal)
	}
	if signal := unix.SignalNum(name); signal != 0 {
		return signal
	}
	return syscall.SIGTERM
}

// lifeEnded takes the end of a container's process.
func (w *worker) lifeEnded(spec *v1.Container, name pod.Container, log *logs.Log, dir string, exit sandbox.Exit, announced <-chan struct{}) {
	if err := log.Close(); err != nil {
		w.node.log.Warn("a log is not complete", "container", spec.Name, "error", err)
	}
	message := w.lastWords(spec, name, dir, exit.Code)
	w.remove(dir)
	<-announced
	w.post(pod.Exited{Container: name, Code: exit.Code, Signal: exit.Signal, OOM: exit.OOM, Message: message})
}

const (
	longestMessage  = 4096
	longestFromLog  = 2048
	mostLinesOfLog  = 80
	terminationFile = "termination-log"
)

// lastWords are the container's own explanation of its end.
func (w *worker) lastWords(spec *v1.Container, name pod.Container, dir string, code int) string {
	file, err := os.Open(filepath.Join(dir, terminationFile))
	if err == nil {
		defer file.Close()
		if text, err := io.ReadAll(io.LimitReader(file, longestMessage)); err == nil && len(text) > 0 {
			return string(text)
		}
	}
	if code == 0 || spec.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	text, err := logs.Tail(w.logPath(spec.Name, name.Life), mostLinesOfLog, longestFromLog)
	if err != nil {
		return ""
	}
	return text
}

func closeAll(mounts []sandbox.Mount) {
	for _, mount := range mounts {
		_ = mount.Tree.Close()
	}
}

// mounts opens everything that is mounted in a container, parents before what lies in them.
func (w *worker) mounts(spec *v1.Container, img image.Image, env []string, dir string) ([]sandbox.Mount, error) {
	var all []sandbox.Mount
	taken := make(map[string]bool)
	add := func(target string, tree *sandbox.Tree, err error) error {
		if err == nil {
			all = append(all, sandbox.Mount{Tree: tree, Target: path.Clean(target)})
			taken[path.Clean(target)] = true
		}
		return err
	}
	for _, mount := range spec.VolumeMounts {
		tree, err := w.volumeTree(mount, env)
		if err := add(mount.MountPath, tree, err); err != nil {
			return all, &badConfigError{fmt.Errorf("volume mount %s: %w", mount.MountPath, err)}
		}
	}
	for target, source := range w.node.imageFiles(img) {
		tree, err := sandbox.Bind(source, true)
		if err := add(target, tree, err); err != nil {
			return all, fmt.Errorf("image file %s: %w", target, err)
		}
	}
	if !taken["/dev/shm"] {
		if tree, err := w.sharedMemory(); err == nil {
			if err := add("/dev/shm", tree, nil); err != nil {
				return all, err
			}
		}
	}
	last := filepath.Join(dir, terminationFile)
	if err := os.WriteFile(last, nil, 0o666); err != nil {
		return all, err
	}
	if err := os.Chmod(last, 0o666); err != nil {
		return all, err
	}
	own := map[string]string{cmp.Or(spec.TerminationMessagePath, v1.TerminationMessagePathDefault): last}
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		own["/etc/"+name] = w.etc(name)
	}
	for target, source := range own {
		if taken[target] {
			continue
		}
		tree, err := sandbox.Bind(source, false)
		if err := add(target, tree, err); err != nil {
			return all, err
		}
	}
	slices.SortFunc(all, func(a, b sandbox.Mount) int { return cmp.Compare(a.Target, b.Target) })
	return all, nil
}

// imageFiles are the files and directories that a container has beside the machine's root: those its image names, and what
// it needs of file systems that are mounted on the root, which the root's overlay does not show.
func (n *Node) imageFiles(img image.Image) map[string]string {
	files := maps.Clone(img.Files)
	if files == nil {
		files = make(map[string]string)
	}
	for _, needed := range []string{"/usr", "/opt", "/nix", img.Program} {
		if path.IsAbs(needed) && !sandbox.OnRoot(needed) && files[needed] == "" {
			files[needed] = needed
		}
	}
	return files
}

// sharedMemory is the pod's /dev/shm; kernels that cannot mount it twice give each container its own.
func (w *worker) sharedMemory() (*sandbox.Tree, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shm == nil {
		return nil, errors.New("none")
	}
	if tree, err := w.shm.Clone(false); err == nil {
		return tree, nil
	}
	return sandbox.Memory(0)
}

// volumeTree opens a volume, or what the mount wants of it.
func (w *worker) volumeTree(mount v1.VolumeMount, env []string) (*sandbox.Tree, error) {
	w.mu.Lock()
	m := w.volumes[mount.Name]
	w.mu.Unlock()
	if m == nil {
		return nil, fmt.Errorf("volume %q is not mounted", mount.Name)
	}
	readOnly := mount.ReadOnly || w.fromObjects(mount.Name)
	below := mount.SubPath
	if mount.SubPathExpr != "" {
		below = container.Expand(mount.SubPathExpr, environment(env))
	}
	if below != "" {
		if err := sandbox.MakeBelow(m.inside(), below, 0o750); err != nil {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q: %w", mount.Name, err)
		}
		return sandbox.BindBelow(m.inside(), below, readOnly)
	}
	if m.tree != nil {
		return m.tree.Clone(readOnly)
	}
	return sandbox.Bind(m.path, readOnly)
}
