package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

// analyzed measures how long pilotctl analyze takes for 10,000 objects in one file, from the text to the problems.
func analyzed(b *bench) error {
	b.release()
	const services = 4_000
	text, objects := shopText(services)
	for range b.reps(5) {
		begin, used := time.Now(), cpuTime()
		a := analyze.New()
		a.File("shop.yaml", text)
		problems := a.AllProblems("cluster.local")
		b.record("analyze-10k/wall", time.Since(begin).Seconds())
		b.record("analyze-10k/cpu", (cpuTime() - used).Seconds())
		if want := services / 10; a.Objects != objects || len(problems) != want {
			return fmt.Errorf("%d objects and %d problems, want %d and %d", a.Objects, len(problems), objects, want)
		}
	}
	return nil
}

// shopText returns the text of services in 100 namespaces, each with routes, and each second one with a rule. Each tenth route leads to a host that
// does not exist.
func shopText(services int) (text []byte, objects int) {
	var t strings.Builder
	for i := range services {
		own := fmt.Sprintf("metadata: {name: web-%d, namespace: %s}\n", i, namespace(i%namespaces))
		host := fmt.Sprintf("web-%d.mesh.example", i)
		to := host
		if i%10 == 3 {
			to = "gone." + host
		}
		fmt.Fprintf(&t, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n%sspec:\n  hosts: [%s]\n  resolution: STATIC\n"+
			"  ports: [{number: 80, name: http, protocol: HTTP}]\n  endpoints: [{address: 10.1.0.1, labels: {version: v1}}]\n---\n", own, host)
		fmt.Fprintf(&t, "apiVersion: networking.istio.io/v1\nkind: VirtualService\n%sspec:\n  hosts: [%s]\n"+
			"  http: [{route: [{destination: {host: %s}}]}]\n---\n", own, host, to)
		objects += 2
		if i%2 == 0 {
			fmt.Fprintf(&t, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n%sspec:\n  host: %s\n  subsets: [{name: v1, labels: {version: v1}}]\n---\n", own, host)
			objects++
		}
	}
	return []byte(t.String()), objects
}
