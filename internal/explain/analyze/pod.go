package analyze

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/inject"
)

// annotated is the metadata of a pod or of a template.
type annotated struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// annotations returns the problems of the annotations of a pod, or of the template of a workload, with which the webhook for injection refuses the
// pod. text is the document as it was before the check.
func annotations(doc *api.Document, text api.Document) (list []api.Problem) {
	var o struct {
		annotated
		Spec struct {
			Template    annotated `json:"template"`
			JobTemplate struct {
				Spec struct {
					Template annotated `json:"template"`
				} `json:"spec"`
			} `json:"jobTemplate"`
		} `json:"spec"`
	}
	if json.Unmarshal(doc.Other, &o) != nil {
		return nil // the converter has reported it
	}
	pod, place := o.Spec.Template, "spec.template.metadata"
	switch doc.Key.Kind {
	case kube.KindPod:
		pod, place = o.annotated, "metadata"
	case "CronJob":
		pod, place = o.Spec.JobTemplate.Spec.Template, "spec.jobTemplate.spec.template.metadata"
	}
	key := doc.Key
	key.Namespace = cmp.Or(key.Namespace, api.DefaultNamespace)
	for _, m := range inject.Mistakes(pod.Metadata.Annotations) {
		list = append(list, api.Problem{
			Object: key, Position: doc.Position, Severity: api.Error, Code: "field-invalid", Field: fmt.Sprintf("%s.annotations[%s]", place, m.Annotation),
			Reason: m.Reason + "; where proxies are injected, the pod is not admitted",
		})
	}
	text.Locate(list)
	return list
}
