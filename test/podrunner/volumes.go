package podrunner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/podrunner/container"
	"github.com/pilotmesh/pilot/test/podrunner/pod"
	"github.com/pilotmesh/pilot/test/podrunner/register"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
	"github.com/pilotmesh/pilot/test/podrunner/volume"
)

const (
	// syncTimeout is how long the API server may take to answer for a Secret or ConfigMap.
	syncTimeout = 10 * time.Second
	// mountRetry is how long after a failure volumes are tried again, when nothing that they use has changed before.
	mountRetry = 10 * time.Second
)

// mountVolumes tries until all volumes are mounted.
func (w *worker) mountVolumes() {
	told := ""
	for {
		err := w.tryVolumes()
		if err == nil {
			w.post(pod.VolumesReady{})
			return
		}
		if w.ctx.Err() != nil {
			return
		}
		if message := err.Error(); message != told {
			told = message
			w.record(pod.Record{Warning: true, Reason: "FailedMount", Message: message})
		}
		timer := time.NewTimer(mountRetry)
		select {
		case <-w.objects:
		case <-timer.C:
		case <-w.ctx.Done():
		}
		timer.Stop()
		if w.leaving() {
			return
		}
	}
}

// leaving reports whether the pod ends and will not need its volumes.
func (w *worker) leaving() bool {
	return w.ctx.Err() != nil || w.pod().DeletionTimestamp != nil
}

func (w *worker) tryVolumes() error {
	object := w.pod()
	for i := range object.Spec.Volumes {
		source := &object.Spec.Volumes[i]
		if err := w.mount(object, source); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", source.Name, err)
		}
	}
	return nil
}

// mount makes a volume, unless it exists.
func (w *worker) mount(object *v1.Pod, source *v1.Volume) error {
	w.mu.Lock()
	done := w.volumes[source.Name] != nil
	w.mu.Unlock()
	if done {
		return nil
	}
	m := &mounted{path: filepath.Join(w.dir, "volumes", source.Name)}
	var err error
	switch {
	case source.EmptyDir != nil:
		err = w.emptyDir(m, object, source.EmptyDir)
	case source.HostPath != nil:
		m.path = source.HostPath.Path
		err = volume.HostPath(source.HostPath)
	case source.PersistentVolumeClaim != nil:
		m.path, err = w.claimed(object, source.PersistentVolumeClaim.ClaimName)
	case volume.FromObjects(&source.VolumeSource):
		if err = os.MkdirAll(m.path, 0o755); err == nil {
			err = w.write(object, source, m.path)
		}
		if err == nil {
			err = volume.Places(m.path, object, source.Name)
		}
	default:
		err = errors.New("podrunner has no such kind of volume (it has emptyDir, hostPath, configMap, secret, downwardAPI, projected, persistentVolumeClaim)")
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.volumes[source.Name] = m
	return nil
}

// claimed is the directory behind a claim, if its volume is one of this machine.
func (w *worker) claimed(object *v1.Pod, name string) (string, error) {
	ctx, cancel := context.WithTimeout(w.ctx, syncTimeout)
	defer cancel()
	claim, err := w.node.client.CoreV1().PersistentVolumeClaims(object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if claim.Status.Phase != v1.ClaimBound || claim.Spec.VolumeName == "" {
		return "", fmt.Errorf("claim %q is not bound", name)
	}
	source, err := w.node.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	switch {
	case source.Spec.HostPath != nil:
		return source.Spec.HostPath.Path, volume.HostPath(source.Spec.HostPath)
	case source.Spec.Local != nil:
		path := source.Spec.Local.Path
		if group := fsGroup(object); group != nil {
			return path, volume.EmptyDir(path, group)
		}
		return path, nil
	}
	return "", fmt.Errorf("volume %q is neither hostPath nor local: podrunner has no drivers", source.Name)
}

func fsGroup(object *v1.Pod) *int64 {
	if context := object.Spec.SecurityContext; context != nil {
		return context.FSGroup
	}
	return nil
}

func (w *worker) emptyDir(m *mounted, object *v1.Pod, source *v1.EmptyDirVolumeSource) error {
	if source.Medium == v1.StorageMediumMemory {
		var size int64
		if source.SizeLimit != nil {
			size = source.SizeLimit.Value()
		}
		tree, err := sandbox.Memory(size)
		if err != nil {
			return err
		}
		// Kernels before 6.15 cannot mount such a tree twice; there, memory is a directory.
		if clone, err := tree.Clone(false); err == nil {
			_ = clone.Close()
			m.tree = tree
		} else {
			_ = tree.Close()
		}
	}
	if m.tree != nil {
		return volume.EmptyDir(m.tree.Path()+"/.", fsGroup(object))
	}
	return volume.EmptyDir(m.path, fsGroup(object))
}

// write brings a volume made of objects up to date.
func (w *worker) write(object *v1.Pod, source *v1.Volume, dir string) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	ctx, cancel := context.WithTimeout(w.ctx, syncTimeout)
	defer cancel()
	sources := w.node.objects.In(ctx, object.Namespace)
	files, err := volume.Files(&source.VolumeSource, w.facts(object), sources, &tokens{w, ctx, object})
	if err != nil {
		return err
	}
	_, err = volume.Write(dir, files, fsGroup(object))
	return err
}

// refreshLater brings all volumes up to date, beside the worker.
func (w *worker) refreshLater() {
	w.spawn(func() {
		object := w.pod()
		for i := range object.Spec.Volumes {
			source := &object.Spec.Volumes[i]
			w.mu.Lock()
			m := w.volumes[source.Name]
			w.mu.Unlock()
			if m == nil || !volume.FromObjects(&source.VolumeSource) {
				continue
			}
			if err := w.write(object, source, m.path); err != nil && w.ctx.Err() == nil && !errors.Is(err, os.ErrNotExist) {
				// The volume keeps its content, as with the kubelet when an object is deleted that a pod uses.
				w.record(pod.Record{Warning: true, Reason: "FailedMount", Message: fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", source.Name, err)})
			}
		}
	})
}

// facts are the facts of the pod's surroundings that its environment may use.
func (w *worker) facts(object *v1.Pod) container.Facts {
	facts := container.Facts{Pod: object, HostIPs: w.node.hostIPs, Allocatable: register.Capacity()}
	if box := w.sandbox(); box != nil {
		for _, address := range box.Addresses() {
			facts.PodIPs = append(facts.PodIPs, address.String())
		}
	}
	facts.Services = w.node.services.All(func(service *v1.Service) bool {
		return service.Namespace == object.Namespace || service.Namespace == metav1.NamespaceDefault && service.Name == "kubernetes"
	})
	return facts
}

// token is a service account's token, as long as it is good.
type token struct {
	text  []byte
	renew time.Time
	ends  time.Time
}

// tokens asks the API server for tokens, and keeps them until they are to be renewed.
type tokens struct {
	worker *worker
	ctx    context.Context
	object *v1.Pod
}

// Token implements volume.Tokens. It is called by one goroutine at a time, as volumes are written.
func (t *tokens) Token(source *v1.ServiceAccountTokenProjection) ([]byte, error) {
	seconds := int64(3600)
	if source.ExpirationSeconds != nil {
		seconds = *source.ExpirationSeconds
	}
	key := fmt.Sprint(source.Audience, " ", seconds)
	now := time.Now()
	old := t.worker.tokens[key]
	if old != nil && now.Before(old.renew) {
		return old.text, nil
	}
	fresh, err := t.request(source.Audience, seconds, now)
	if err != nil {
		if old != nil && now.Before(old.ends) {
			t.worker.renewAt(now.Add(mountRetry))
			return old.text, nil
		}
		return nil, fmt.Errorf("failed to fetch token: %w", err)
	}
	t.worker.tokens[key] = fresh
	t.worker.renewAt(fresh.renew)
	return fresh.text, nil
}

func (t *tokens) request(audience string, seconds int64, now time.Time) (*token, error) {
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: t.object.Name, UID: t.object.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	accounts := t.worker.node.client.CoreV1().ServiceAccounts(t.object.Namespace)
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		answer, err := accounts.CreateToken(t.ctx, t.object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		// The authorizer may learn later than we that the pod is ours.
		if apierrors.IsForbidden(err) && pause < 2*time.Second && t.worker.sleep(pause) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ends := answer.Status.ExpirationTimestamp.Time
		renew := now.Add(min(ends.Sub(now)*4/5, t.worker.node.options.RenewTokens))
		return &token{text: []byte(answer.Status.Token), renew: renew, ends: ends}, nil
	}
}

// renewAt has volumes written again no later than at.
func (w *worker) renewAt(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.renewing != nil {
		w.renewing.Stop()
	}
	w.renewing = time.AfterFunc(time.Until(at), w.refreshLater)
}
