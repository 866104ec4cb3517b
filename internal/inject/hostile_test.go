package inject

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
		"1 MB":         strings.Repeat("x", 1<<20),
		"1 MB numbers": strings.Repeat("80,", 1<<18),
		"1 MB lines":   strings.Repeat("a: b\n", 1<<18),
		"path":         "../../../../etc/shadow",
		"file":         "@/etc/passwd",
		"variables":    "proxyMetadata: {\"LD_PRELOAD=/tmp/x.so\\nPATH\": /tmp}",
		"command":      "$(cat /etc/passwd); `id`",
		"no text":      "\xff\xfe\x00",
		"line breaks":  "a\n- b\n  hostNetwork: true",
	}
}

// TestHostile: whatever is in an annotation, the answer comes soon. Either the pod is refused with a short reason, or the value has no effect outside the
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
			start := time.Now()
			r, err := i.Inject(Request{Pod: p})
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s: %s: the answer takes %v", annotation, name, took)
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
