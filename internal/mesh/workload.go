package mesh

import (
	"cmp"
	"slices"
	"strings"
)

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

// WorkloadField is a part of the text about a workload; see Text.
type WorkloadField int

// The parts, in their order.
const (
	FieldWorkload WorkloadField = iota
	FieldApp
	FieldVersion
	FieldService
	FieldRevision
	FieldCluster
)

// FieldSeparator separates the parts. Names and values of labels in Kubernetes do not have it.
const FieldSeparator = "/"

// Text returns the parts in their order, for a certificate of the workload in a cluster. It is empty if a part has a separator, or a character that is
// written in another way where the subject of a certificate is shown (RFC 2253, section 2.4).
func (w WorkloadIdentity) Text(cluster string) string {
	parts := []string{w.Workload, w.App, w.Version, w.Service, w.Revision, cluster}
	if slices.ContainsFunc(parts, func(p string) bool { return strings.Trim(p, certifiable) != "" }) {
		return ""
	}
	return strings.Join(parts, FieldSeparator)
}

// certifiable are the characters of names and of values of labels in Kubernetes.
const certifiable = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
