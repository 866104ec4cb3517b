package pod_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/test/podrunner/pod"
)

var update = flag.Bool("update", false, "rewrite the conversations in testdata")

// TestConversations plays the files in testdata: a pod, then, after "---", one event per line that begins with ">". What
// follows an event are the actions asked for, and the status where it changed; the flag -update writes those.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations in testdata (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(text) && !*update {
				t.Errorf("%s: the conversation goes otherwise (rewrite it with -update, and read the difference):\n%s", file, got)
			}
		})
	}
}

// player plays one conversation.
type player struct {
	t       *testing.T
	object  *v1.Pod
	machine *pod.Machine
	start   time.Time
	now     time.Time
	lives   map[string]int
	status  string
}

func play(t *testing.T, text string) string {
	head, body, found := strings.Cut(text, "\n---\n")
	if !found {
		t.Fatal("no line --- between the pod and the conversation")
	}
	object := new(v1.Pod)
	if err := yaml.UnmarshalStrict([]byte(head), object); err != nil {
		t.Fatal(err)
	}
	object.Name, object.Namespace, object.UID = "p", "default", "u1"
	p := &player{t: t, object: object, start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), lives: map[string]int{}}
	p.now = p.start
	p.machine = pod.New(object, pod.DefaultPolicy(), p.now)
	var out strings.Builder
	out.WriteString(head + "\n---\n")
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
		if event, ok := strings.CutPrefix(strings.TrimSpace(line), "> "); ok {
			out.WriteString("> " + event + "\n")
			out.WriteString(p.step(strings.Fields(event)))
		}
	}
	return out.String()
}

// step plays one event: a word, a container, the rest; "+10s" before it lets time pass.
func (p *player) step(words []string) string {
	if after, ok := strings.CutPrefix(words[0], "+"); ok {
		passed, err := time.ParseDuration(after)
		if err != nil {
			p.t.Fatal(err)
		}
		p.now = p.now.Add(passed)
		words = append(words[1:], "due")[:max(1, len(words)-1)]
	}
	var out strings.Builder
	for _, action := range p.machine.Step(p.event(words), p.now) {
		out.WriteString("  " + p.show(action) + "\n")
	}
	if status := p.summary(); status != p.status {
		out.WriteString("  = " + status + "\n")
		p.status = status
	}
	return out.String()
}

func (p *player) event(words []string) pod.Event {
	rest := strings.Join(words[min(2, len(words)):], " ")
	var c pod.Container
	if len(words) > 1 {
		c = pod.Container{Name: words[1], Life: p.lives[words[1]]}
	}
	switch words[0] {
	case "begin", "retry":
		return pod.Retry{}
	case "volumes":
		return pod.VolumesReady{}
	case "up":
		return pod.SandboxUp{IPs: words[1:]}
	case "no-sandbox":
		return pod.SandboxFailed{Message: "broken"}
	case "down":
		return pod.SandboxDown{}
	case "started":
		return pod.Started{Container: c, ID: "podrunner://" + c.Name}
	case "failed":
		return pod.StartFailed{Container: c, Failure: pod.Failure{Cause: pod.Cause(words[2]), Message: "why"}}
	case "exited":
		code, err := strconv.Atoi(words[2])
		if err != nil {
			p.t.Fatal(err)
		}
		return pod.Exited{Container: c, Code: code}
	case "hooked":
		hook, message, _ := strings.Cut(rest, " ")
		return pod.Hooked{Container: c, Hook: pod.Hook(hook), Err: message}
	case "probed":
		return pod.Probed{Container: c, Probe: pod.Probe(words[2]), OK: words[3] == "ok", Output: "answer"}
	case "delete":
		seconds, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		p.object = p.object.DeepCopy()
		p.object.DeletionTimestamp, p.object.DeletionGracePeriodSeconds = &metav1.Time{Time: p.now}, &seconds
		return pod.Changed{Pod: p.object}
	case "image":
		p.object = p.object.DeepCopy()
		for i := range p.object.Spec.Containers {
			if p.object.Spec.Containers[i].Name == words[1] {
				p.object.Spec.Containers[i].Image = words[2]
			}
		}
		return pod.Changed{Pod: p.object}
	case "removed":
		return pod.Removed{}
	case "due":
		return pod.Due{}
	}
	p.t.Fatalf("no event %q", words[0])
	return nil
}

func (p *player) show(action pod.Action) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", action), "pod.")
	switch action := action.(type) {
	case pod.Start:
		p.lives[action.Name] = action.Life
		return fmt.Sprintf("%s %s#%d", name, action.Name, action.Life)
	case pod.Wake:
		return fmt.Sprintf("%s at %v", name, action.At.Sub(p.start))
	case pod.Stop:
		if action.Now {
			name = "Kill"
		}
		return name + " " + action.Name
	case pod.Run:
		if action.Until.IsZero() {
			return fmt.Sprintf("%s %s %s", name, action.Name, action.Hook)
		}
		return fmt.Sprintf("%s %s %s until %v", name, action.Name, action.Hook, action.Until.Sub(p.start))
	case pod.Ask:
		return fmt.Sprintf("%s %s %s", name, action.Name, action.Probe)
	case pod.Leave:
		return fmt.Sprintf("%s %s %s", name, action.Name, action.Probe)
	case pod.Record:
		return fmt.Sprintf("%s %s: %s", name, action.Reason, action.Message)
	case pod.Finish:
		if action.Forget {
			return name + " and forget"
		}
	}
	return name
}

// summary is the status in a line: the phase, true conditions, and each container.
func (p *player) summary() string {
	status := p.machine.Status()
	words := []string{string(status.Phase)}
	for _, condition := range status.Conditions {
		if condition.Status == v1.ConditionTrue {
			words = append(words, string(condition.Type))
		}
	}
	for _, c := range append(status.InitContainerStatuses, status.ContainerStatuses...) {
		state := "running"
		switch {
		case c.State.Waiting != nil:
			state = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			state = fmt.Sprintf("%s(%d)", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
		}
		if c.Ready {
			state += ",ready"
		}
		if c.RestartCount > 0 {
			state += fmt.Sprintf(",restarts=%d", c.RestartCount)
		}
		words = append(words, c.Name+":"+state)
	}
	return strings.Join(words, " ")
}
