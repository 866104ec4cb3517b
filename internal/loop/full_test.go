package loop

import "testing"

// TestFullSidecarIsAProblem checks that a sidecar that is refused further hosts has a problem until it leaves. It has one however often it is refused.
func TestFullSidecarIsAProblem(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	web, _ := f.attach(web0, "")
	web.NoteFull("the workload has used too many")
	web.NoteFull("the workload has used too many")
	f.eventually("a problem", hasProblem(web0, "too many; the hosts that it has are still updated"))
	web.Close()
	f.eventually("no problem", func(v *View) bool { return v.Problems.Len() == 0 && v.Tables.Full.Len() == 0 })
}
