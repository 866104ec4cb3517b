package mesh

import "cmp"

// Labels that say what a workload is.
const (
	workloadNameLabel      = "service.istio.io/workload-name"
	canonicalNameLabel     = "service.istio.io/canonical-name"
	canonicalRevisionLabel = "service.istio.io/canonical-revision"
	appNameLabel           = "app.kubernetes.io/name"
	appVersionLabel        = "app.kubernetes.io/version"
	appLabel               = "app"
	versionLabel           = "version"
)

// latest is the revision of workloads whose labels name none.
const latest = "latest"

// WorkloadIdentity is how metrics and traces name a workload. A name is empty if it is not known.
type WorkloadIdentity struct{ Workload, App, Version, Service, Revision string }

// IdentityOf returns how metrics and traces name a workload with some labels. owner is the name of the object that made its pods, such as a
// Deployment; empty if there is none. A label with the name of the workload goes before it.
func IdentityOf(labels Labels, owner string) WorkloadIdentity {
	value := func(name string) string { v, _ := LabelValue(labels, name); return v }
	is := WorkloadIdentity{App: cmp.Or(value(appLabel), value(appNameLabel)), Version: cmp.Or(value(versionLabel), value(appVersionLabel))}
	is.Service = cmp.Or(value(canonicalNameLabel), value(appNameLabel), value(appLabel), owner)
	is.Workload = cmp.Or(value(workloadNameLabel), owner, is.Service)
	is.Revision = cmp.Or(value(canonicalRevisionLabel), value(appVersionLabel), value(versionLabel), latest)
	return is
}
