package proof

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// TestKubectl: logs, exec, attach, cp and port-forward, by the real one.
func TestKubectl(t *testing.T) {
	s := on(t)
	s.apply(manifest("web", "args: [serve, --http=:8080, --name=web]"))
	s.apply(manifest("shell", `command: [sh, -c, "echo one; echo two >&2; cat"]
stdin: true`))
	s.ready("web")
	s.ready("shell")
	if out := s.kubectl("logs", "shell"); !strings.Contains(out, "one\n") || !strings.Contains(out, "two\n") {
		t.Errorf("logs: %q", out)
	}
	if out := s.kubectl("logs", "shell", "--tail=1", "--timestamps"); strings.Count(out, "\n") != 1 || !strings.Contains(out, "T") {
		t.Errorf("logs --tail=1 --timestamps: %q", out)
	}
	out, err := s.try(t.Context(), "through the pipe", "exec", "-i", "web", "--", "sh", "-c", "cat; echo; hostname")
	if err != nil || out != "through the pipe\nweb\n" {
		t.Errorf("exec: %v %q", err, out)
	}
	if out, err := s.try(t.Context(), "", "exec", "web", "--", "sh", "-c", "exit 3"); err == nil || !strings.Contains(out, "exit code 3") {
		t.Errorf("exec of what fails: %v %q", err, out)
	}
	s.apply(manifest("once", "command: [sh, -c, \"echo begun; cat; echo ended\"]\nstdin: true\nstdinOnce: true"))
	s.ready("once")
	attached, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if out, err := s.try(attached, "what was typed\n", "attach", "-i", "once"); err != nil || !strings.Contains(out, "what was typed\n") || !strings.Contains(out, "ended") {
		t.Errorf("attach: %v %q", err, out)
	}
	s.copies()
	s.forwards()
}

// copies takes a file into a pod and back.
func (s *stage) copies() {
	s.Helper()
	dir := s.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	if err := os.WriteFile(there, []byte("a file"), 0o644); err != nil {
		s.Fatal(err)
	}
	s.kubectl("cp", there, "web:/tmp/copied")
	s.kubectl("cp", "web:/tmp/copied", back)
	if text, err := os.ReadFile(back); err != nil || string(text) != "a file" {
		s.Errorf("cp: %v %q", err, text)
	}
	if _, err := os.Stat("/tmp/copied"); err == nil {
		s.Error("cp wrote to the machine's own /tmp")
	}
}

// forwards asks a pod through port-forward.
func (s *stage) forwards() {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	forward := exec.CommandContext(ctx, s.c.Kubectl(), "--kubeconfig", s.c.Kubeconfig(), "-n", s.namespace, "port-forward", "web", ":8080")
	out, err := forward.StdoutPipe()
	if err == nil {
		err = forward.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	defer func() { cancel(); _ = forward.Wait() }()
	line := make([]byte, 200) // Forwarding from 127.0.0.1:PORT -> 8080
	n, err := out.Read(line)
	if err != nil {
		s.Fatalf("port-forward: %v", err)
	}
	_, port, _ := strings.Cut(strings.Fields(string(line[:n]))[2], ":")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for range 3 {
		answer, err := client.Get("http://127.0.0.1:" + port)
		if err != nil {
			s.Fatalf("port-forward: %v", err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if !strings.Contains(string(text), `"name":"web"`) {
			s.Errorf("port-forward: %q", text)
		}
	}
}

// TestSecretEdit: an edit of a mounted Secret is visible in the pod within two seconds, as one swap.
func TestSecretEdit(t *testing.T) {
	s := on(t)
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: %[1]s, b: %[1]s}\n"
	s.apply(fmt.Sprintf(secret, "before"))
	s.apply(`apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  containers:
  - {name: main, image: busybox, command: [sleep, infinity], volumeMounts: [{name: s, mountPath: /s}]}
  volumes:
  - {name: s, secret: {secretName: s}}
`)
	s.ready("reader")
	if out := s.kubectl("exec", "reader", "--", "cat", "/s/a", "/s/b"); out != "beforebefore" {
		t.Fatalf("the secret is %q", out)
	}
	s.apply(fmt.Sprintf(secret, "after"))
	// Waited for inside the pod, so that the time of starting kubectl does not count.
	out, err := s.try(t.Context(), "", "exec", "reader", "--", "sh", "-c", `for i in $(seq 20); do [ "$(cat /s/a)" = after ] && exec cat /s/b; sleep 0.1; done; echo too late`)
	if err != nil || out != "after" {
		t.Errorf("after two seconds: %v %q", err, out)
	}
}

// TestBadPods: the fault of a pod is reported where users look, and a mended pod recovers.
func TestBadPods(t *testing.T) {
	s := on(t)
	waiting := func(pod, reason string) {
		t.Helper()
		s.status(pod, "main", pod+" to wait with "+reason, func(c core.ContainerStatus) bool { return c.State.Waiting != nil && c.State.Waiting.Reason == reason })
	}
	s.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: unknown}\nspec: {containers: [{name: main, image: nobody/has:this}]}\n")
	s.apply(manifest("missing", "args: [serve, --http=:8080]\nenvFrom: [{configMapRef: {name: late}}]"))
	s.apply(manifest("crashing", `command: [sh, -c, "echo last words; exit 7"]`))
	s.apply(manifest("nonsense", "command: [/no/such/program]"))
	s.apply(manifest("failing", `command: [sleep, infinity]
livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1}`))
	s.apply(manifest("stubborn", `command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]`))

	waiting("unknown", "ImagePullBackOff")
	if out := s.kubectl("get", "events", "--field-selector=involvedObject.name=unknown"); !strings.Contains(out, "nobody/has:this") {
		t.Errorf("no event names the image:\n%s", out)
	}
	waiting("missing", "CreateContainerConfigError")
	s.kubectl("create", "configmap", "late", "--from-literal=A=b")
	s.ready("missing")
	waiting("crashing", "CrashLoopBackOff")
	if c := s.status("crashing", "main", "a last state", func(c core.ContainerStatus) bool { return c.LastTerminationState.Terminated != nil }); c.LastTerminationState.Terminated.ExitCode != 7 {
		t.Errorf("exit code %d", c.LastTerminationState.Terminated.ExitCode)
	}
	if out := s.kubectl("logs", "crashing", "--previous"); !strings.Contains(out, "last words") {
		t.Errorf("logs --previous: %q", out)
	}
	s.status("nonsense", "main", "a command that is not there to be reported", func(c core.ContainerStatus) bool {
		t := c.LastTerminationState.Terminated
		if t == nil {
			t = c.State.Terminated
		}
		return t != nil && t.ExitCode >= 127 || c.State.Waiting != nil && c.State.Waiting.Reason == "RunContainerError"
	})
	s.status("failing", "main", "a failing probe to restart the container", func(c core.ContainerStatus) bool { return c.RestartCount > 0 })
	s.ready("stubborn")
	begin := time.Now()
	s.kubectl("delete", "pod", "stubborn", "--timeout=30s")
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("a pod that ignores SIGTERM went after %s; it has a grace of 2 s", took)
	}
}
