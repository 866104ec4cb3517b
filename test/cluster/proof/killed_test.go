package proof

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/standard"
	"github.com/pilotmesh/pilot/test/kit/process"
)

// victim is set in the environment of the process that TestKilled kills.
const victim = "PILOT_PROOF_VICTIM"

// bePrey starts a cluster with a pod, says so and waits to be killed.
func bePrey() int {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := standard.Start(ctx, cluster.Options{Nodes: 1})
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "p"}, Spec: core.PodSpec{
		Volumes:    []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{Medium: core.StorageMediumMemory}}}},
		Containers: []core.Container{{Name: "main", Image: "registry.k8s.io/pause", VolumeMounts: []core.VolumeMount{{Name: "v", MountPath: "/v"}}}},
	}}
	pods := c.Client().CoreV1().Pods("default")
	if _, err := pods.Create(ctx, pod, meta.CreateOptions{}); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	err = poll(ctx, func() error {
		p, err := pods.Get(ctx, "p", meta.GetOptions{})
		if err == nil && p.Status.Phase != core.PodRunning {
			err = fmt.Errorf("phase %s", p.Status.Phase)
		}
		return err
	})
	fmt.Println("running", c.Devices(), c.Dir(), err)
	<-ctx.Done()
	return 1
}

// TestKilled: when the process of a cluster that runs pods is killed outright, nothing is left of it on the machine.
func TestKilled(t *testing.T) {
	shared.For(t) // can it run here?
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), victim+"=1")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = in
	p, err := process.Start(cmd)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	p.Kill()
	word := strings.Fields(line)
	if err != nil || len(word) != 4 || word[0] != "running" || word[3] != "<nil>" {
		t.Fatalf("the victim said %q (%v)", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, left := range standard.Left(ctx, word[1], word[2]) {
		t.Error("left behind: ", left)
	}
}
