package podrunner

import (
	"context"
	"maps"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pilotmesh/pilot/test/podrunner/logs"
	"github.com/pilotmesh/pilot/test/podrunner/pod"
	"github.com/pilotmesh/pilot/test/podrunner/probe"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
	"github.com/pilotmesh/pilot/test/podrunner/stage"
	"github.com/pilotmesh/pilot/test/podrunner/watch"
)

// worker leads the life of one pod: it is the only one that talks to the pod's Machine.
type worker struct {
	node   *Node
	uid    types.UID
	dir    string
	outer  context.Context // ends when the node abandons the pod
	cancel context.CancelFunc
	ctx    context.Context // of tasks; ends with the pod
	end    context.CancelFunc
	ended  chan struct{}
	// removed is closed when the API server has the pod no more.
	removed chan struct{}
	tasks   sync.WaitGroup // begun by spawn
	user    *watch.User
	report  reporter

	machine *pod.Machine // of the goroutine in run, as the next ones
	probes  map[asked]*probe.Loop
	timer   *time.Timer

	mu       sync.Mutex
	closed   bool
	object   *v1.Pod
	queue    []pod.Event
	bell     chan struct{} // has room for one
	box      *sandbox.Pod
	lives    map[string]*life // the last life of each container
	volumes  map[string]*mounted
	shm      *sandbox.Tree // what the containers share at /dev/shm
	tokens   map[string]*token
	writing  sync.Mutex    // one at a time writes volumes
	objects  chan struct{} // rings when an object the pod uses has changed; has room for one
	renewing *time.Timer
}

// asked names a probe of a container's life.
type asked struct {
	pod.Container
	probe pod.Probe
}

// life is a container that runs, or has run last.
type life struct {
	number  int
	process *sandbox.Process
	log     *logs.Log
	spec    stage.Spec // as it was started: commands executed inside get the same
	signal  syscall.Signal
}

// mounted is a volume that is ready.
type mounted struct {
	path string
	tree *sandbox.Tree // of a volume in memory
}

func (m *mounted) inside() string {
	if m.tree != nil {
		return m.tree.Path()
	}
	return m.path
}

func newWorker(n *Node, object *v1.Pod) *worker {
	w := &worker{
		node: n, uid: object.UID, object: object, ended: make(chan struct{}), removed: make(chan struct{}), bell: make(chan struct{}, 1), objects: make(chan struct{}, 1),
		dir:    filepath.Join(n.podsDir(), string(object.UID)),
		lives:  make(map[string]*life),
		probes: make(map[asked]*probe.Loop), volumes: make(map[string]*mounted), tokens: make(map[string]*token),
	}
	w.outer, w.cancel = context.WithCancel(n.ctx)
	w.ctx, w.end = context.WithCancel(w.outer)
	w.user = &watch.User{Changed: w.objectChanged}
	w.report.worker = w
	w.machine = pod.New(object, n.policy, time.Now())
	n.objects.Use(w.user, watch.Refs(object))
	return w
}

// run is the worker's goroutine.
func (w *worker) run() {
	defer close(w.ended)
	defer w.node.leave(w)
	w.timer = time.NewTimer(time.Hour)
	defer w.timer.Stop()
	finished := w.step(pod.Retry{})
	for !finished {
		select {
		case <-w.bell:
			for _, event := range w.take() {
				finished = w.step(event) || finished
			}
		case <-w.timer.C:
			finished = w.step(pod.Due{})
		case <-w.ctx.Done():
			finished = true
		}
	}
	w.close()
	// Late events of the object must not look like events of a new one.
	wait(w.outer, w.removed)
}

// step feeds an event to the machine and runs the resulting actions. It reports whether the pod has come to its end.
func (w *worker) step(event pod.Event) (finished bool) {
	for _, action := range w.machine.Step(event, time.Now()) {
		if finish, ok := action.(pod.Finish); ok {
			w.finish(finish)
			return true
		}
		w.do(action)
	}
	w.report.set(w.machine.Status())
	return false
}

func (w *worker) do(action pod.Action) {
	switch action := action.(type) {
	case pod.MountVolumes:
		w.spawn(w.mountVolumes)
	case pod.MakeSandbox:
		w.spawn(w.makeSandbox)
	case pod.DropSandbox:
		w.spawn(func() { w.dropSandbox(); w.post(pod.SandboxDown{}) })
	case pod.Start:
		w.spawn(func() { w.start(action.Container) })
	case pod.Stop:
		w.stop(action)
	case pod.Run:
		w.spawn(func() { w.hook(action) })
	case pod.Ask:
		w.ask(action)
	case pod.Leave:
		w.leave(asked{action.Container, action.Probe})
	case pod.Wake:
		w.timer.Reset(max(0, time.Until(action.At)))
	case pod.Record:
		w.record(action)
	}
}

// post brings the worker an event. It never blocks.
func (w *worker) post(event pod.Event) {
	w.mu.Lock()
	w.queue = append(w.queue, event)
	w.mu.Unlock()
	ring(w.bell)
}

// spawn runs f beside the worker, which waits for it in the end.
func (w *worker) spawn(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.tasks.Go(f)
	}
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it rings already
	}
}

func (w *worker) take() []pod.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.queue
	w.queue = nil
	return events
}

// changed takes a new state of the pod's object.
func (w *worker) changed(object *v1.Pod) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return // and let go of all it used
	}
	old := w.object
	w.object = object
	w.node.objects.Use(w.user, watch.Refs(object))
	w.mu.Unlock()
	w.post(pod.Changed{Pod: object})
	w.report.observe(object)
	if object.DeletionTimestamp != nil {
		ring(w.objects) // waiting for volumes need not continue
	}
	if !maps.Equal(old.Labels, object.Labels) || !maps.Equal(old.Annotations, object.Annotations) {
		w.objectChanged() // a volume may contain them
	}
}

// gone is called once, when the object was deleted.
func (w *worker) gone() {
	close(w.removed)
	w.post(pod.Removed{})
}

// objectChanged is called when an object that volumes and containers use may have appeared or changed.
func (w *worker) objectChanged() {
	ring(w.objects)
	w.mu.Lock()
	ready := len(w.volumes) > 0
	w.mu.Unlock()
	w.post(pod.Retry{})
	if ready {
		w.refreshLater()
	}
}

func (w *worker) pod() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.object
}

func (w *worker) sandbox() *sandbox.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.box
}

// stop ends a container, or asks it to.
func (w *worker) stop(action pod.Stop) {
	w.mu.Lock()
	life := w.lives[action.Name]
	w.mu.Unlock()
	if life == nil || life.number != action.Life || life.process == nil {
		return
	}
	signal := syscall.SIGKILL
	if !action.Now {
		signal = life.signal
	}
	if err := life.process.Signal(signal); err != nil {
		w.node.log.Warn("container does not take a signal", "pod", w.object.Name, "container", action.Name, "error", err)
	}
}

func (w *worker) record(action pod.Record) {
	kind := v1.EventTypeNormal
	if action.Warning {
		kind = v1.EventTypeWarning
	}
	object := w.pod()
	reference := &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: object.Namespace, Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
	}
	if action.Container != "" {
		reference.FieldPath = "spec.containers{" + action.Container + "}"
	}
	w.node.recorder.Event(reference, kind, action.Reason, action.Message)
}

// close ends everything the pod still has.
func (w *worker) close() {
	for probe := range w.probes {
		w.leave(probe)
	}
	w.mu.Lock()
	w.closed = true
	if w.renewing != nil {
		w.renewing.Stop()
	}
	w.node.objects.Use(w.user, nil)
	w.mu.Unlock()
	w.end()
	w.dropSandbox()
	w.tasks.Wait()
	w.dropSandbox() // a task may just have made it
	w.removeFiles()
}
