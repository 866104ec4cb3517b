package inject

import (
	"encoding/json"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// hostile are values that users should not be able to do harm with.
func hostile() map[string]string {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for n := range 12 {
		level := string(rune('a' + n))
		next := string(rune('b' + n))
		bomb += next + "0: &" + next + "0 [" + strings.TrimSuffix(strings.Repeat("*"+level+"0, ", 10), ", ") + "]\n"
	}
	return map[string]string{
		"template":     `{{ range $i := until 999999999 }}{{ .Values.global }}{{ end }}{{ printf "%d" 41 }}`,
		"YAML bomb":    bomb,
		"deep":         strings.Repeat("[", 100_000),
		"deep mapping": strings.Repeat("{a: ", 50_000),
		"deep JSON":    strings.Repeat(`{"a":`, 50_000),
		"long":         strings.Repeat("x", 260_000),
		"numbers":      strings.Repeat("80,", 260_000/3),
		"lines":        strings.Repeat("a: b\n", 260_000/5),
		"path":         "../../../../etc/shadow",
		"file":         "@/etc/passwd",
		"variables":    "proxyMetadata: {\"LD_PRELOAD=/tmp/x.so\\nPATH\": /tmp}",
		"command":      "$(cat /etc/passwd); `id`",
		"no text":      "\xff\xfe\x00",
		"line breaks":  "a\n- b\n  hostNetwork: true",
	}
}

// TestHostile: whatever is in an annotation, the answer takes little memory, which bounds its time as well. Either the pod is refused with a short reason, or the value has no effect outside the
// proxy: no other container changes, nothing of the host is mounted, and no template is rendered.
func TestHostile(t *testing.T) {
	i, _ := prepared(t, "{}")
	for _, annotation := range []string{
		templatesAnnotation, statusAnnotation, overridesAnnotation, configAnnotation, beforeAnnotation, interceptionAnnotation, nativeAnnotation, imageAnnotation,
		imageTypeAnnotation, logLevelAnnotation, componentsAnnotation, agentLogAnnotation, bootstrapAnnotation, bindAnnotation, userVolumeAnnotation, userMountAnnotation,
		rewriteAnnotation, cpuAnnotation, cpuLimitAnnotation, memoryAnnotation, memoryLimitAnnotation, statusPortAnnotation, delayAnnotation, periodAnnotation,
		failuresAnnotation, includeRangesAnnotation, excludeRangesAnnotation, includeInAnnotation, excludeInAnnotation, includeOutAnnotation, excludeOutAnnotation,
		interfacesAnnotation, kubevirtAnnotation, rerouteAnnotation, mergeAnnotation, targetsAnnotation, securePortAnnotation, datadogAnnotation, multusAnnotation,
	} {
		for name, value := range hostile() {
			p := pod(map[string]string{annotation: value})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := i.Inject(Request{Pod: p})
			runtime.ReadMemStats(&after)
			if made := after.TotalAlloc - before.TotalAlloc; made > 1000*annotationBytes {
				t.Errorf("%s: %s: the answer allocates %d bytes", annotation, name, made)
			}
			if err != nil {
				if n := len(err.Error()); n > 2000 {
					t.Errorf("%s: %s: the reason has %d bytes: %.300s", annotation, name, n, err)
				}
				continue
			}
			for _, c := range r.Pod.Spec.Containers {
				if c.Name == "main" && !reflect.DeepEqual(c, p.Spec.Containers[0]) {
					t.Errorf("%s: %s: the application changes to %+v", annotation, name, c)
				}
			}
			proxies := slices.DeleteFunc(slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers), func(c corev1.Container) bool { return c.Name != proxyName })
			if r.Pod.Spec.HostNetwork || r.Pod.Spec.HostPID || len(proxies) != 1 {
				t.Errorf("%s: %s: the pod has become %+v", annotation, name, r.Pod.Spec)
			}
			for _, v := range r.Pod.Spec.Volumes {
				if v.HostPath != nil {
					t.Errorf("%s: %s: the pod mounts %s of its host", annotation, name, v.HostPath.Path)
				}
			}
			text, err := json.Marshal(r.Pod.Spec)
			if err != nil || strings.Contains(string(text), "41{{") || strings.Contains(string(text), `"41"`) {
				t.Errorf("%s: %s: %v, or a template was rendered", annotation, name, err)
			}
		}
	}
}

// TestTooLarge: annotations that an API server would not store are refused without being read, one or several, ours or not.
func TestTooLarge(t *testing.T) {
	i, _ := prepared(t, "{}")
	at := func(n int) map[string]string {
		return map[string]string{"example.com/notes": strings.Repeat("x", n/2), "k": strings.Repeat("x", n-n/2-len("example.com/notes")-len("k"))}
	}
	if _, err := i.Inject(Request{Pod: pod(at(annotationBytes))}); err != nil {
		t.Errorf("%d bytes: %v", annotationBytes, err)
	}
	_, err := i.Inject(Request{Pod: pod(at(annotationBytes + 1))})
	want := "annotation example.com/notes: the annotations of the pod have 262145 bytes together, and Kubernetes allows 262144; shorten this one, which has 131072"
	if err == nil || err.Error() != want {
		t.Errorf("one byte more: %v, want %s", err, want)
	}
}
