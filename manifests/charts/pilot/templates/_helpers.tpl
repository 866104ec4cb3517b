{{/* The values: those under pilot lie over those of the same name at the top, as in Istio's chart. */}}
{{- define "pilot.values" -}}
{{- $all := omit (deepCopy (.Values | default dict)) "pilot" -}}
{{- mustMergeOverwrite $all (deepCopy (.Values.pilot | default dict)) | toJson -}}
{{- end -}}

{{/* The name of a revision, in labels and in the selectors of webhooks. */}}
{{- define "pilot.revision" -}}
{{- .Values.revision | default "default" -}}
{{- end -}}

{{/* "-REVISION", or nothing for the default revision. */}}
{{- define "pilot.suffix" -}}
{{- if not (has .Values.revision (list "" "default")) }}-{{ .Values.revision }}{{ end -}}
{{- end -}}

{{/* The Service, the Deployment and what scales it. */}}
{{- define "pilot.name" -}}istiod{{ include "pilot.suffix" . }}{{- end -}}

{{/* The account, and its roles in the namespace. */}}
{{- define "pilot.account" -}}pilot-discovery{{ include "pilot.suffix" . }}{{- end -}}

{{/* Its roles in the cluster: their names differ between namespaces. */}}
{{- define "pilot.clusterName" -}}pilot-discovery{{ include "pilot.suffix" . }}-{{ .Release.Namespace }}{{- end -}}

{{/* The configuration of the injecting webhook: the control plane looks for it by this name. */}}
{{- define "pilot.injector" -}}
istio-sidecar-injector{{ include "pilot.suffix" . }}{{ if ne .Release.Namespace "istio-system" }}-{{ .Release.Namespace }}{{ end }}
{{- end -}}

{{/* The configuration of the checking webhook. */}}
{{- define "pilot.validator" -}}istio{{ include "pilot.suffix" . }}-{{ .Release.Namespace }}{{- end -}}

{{/* Labels of all objects. */}}
{{- define "pilot.labels" -}}
app: istiod
istio.io/rev: {{ include "pilot.revision" . | quote }}
app.kubernetes.io/name: pilot
app.kubernetes.io/instance: {{ include "pilot.name" . }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels by which the Service and the Deployment select pods. They must never change: a Deployment's selector cannot. */}}
{{- define "pilot.selector" -}}
app: istiod
istio.io/rev: {{ include "pilot.revision" . | quote }}
{{- end -}}
