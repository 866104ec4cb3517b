{{- define "cni.name" -}}istio-cni-node{{- end -}}

{{/* The name of objects of the cluster differs between namespaces. */}}
{{- define "cni.clusterName" -}}{{ include "cni.name" . }}-{{ .Release.Namespace }}{{- end -}}

{{- define "cni.labels" -}}
k8s-app: {{ include "cni.name" . }}
app.kubernetes.io/name: pilot-cni
app.kubernetes.io/instance: {{ include "cni.name" . }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "cni.image" -}}
{{- if contains "/" .Values.image }}{{ .Values.image }}{{ else -}}
{{- $variant := .Values.variant | default .Values.global.variant -}}
{{ .Values.hub | default .Values.global.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Values.global.tag | default .Chart.AppVersion }}{{ with $variant }}-{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* What happens to pods that started without the plugin. */}}
{{- define "cni.repair" -}}
{{- $r := .Values.repair -}}
{{- if not $r.enabled }}off{{ else if $r.repairPods }}repair{{ else if $r.deletePods }}delete{{ else if $r.labelPods }}label{{ else }}off{{ end -}}
{{- end -}}
