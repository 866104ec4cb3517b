{{- define "gateway.name" -}}{{ .Values.name | default .Release.Name }}{{- end -}}

{{- define "gateway.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "gateway.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end -}}
{{- end -}}

{{/* Labels by which Gateways and the Service select the pods. The label istio is the name without istio-, as in Istio's chart. */}}
{{- define "gateway.selector" -}}
app: {{ (index .Values.labels "app") | default (include "gateway.name" .) | quote }}
istio: {{ (index .Values.labels "istio") | default (include "gateway.name" . | trimPrefix "istio-") | quote }}
{{- end -}}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/instance: {{ include "gateway.name" . }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with omit .Values.labels "app" "istio" }}
{{ toYaml . }}
{{- end }}
{{- with .Values.networkGateway }}
topology.istio.io/network: {{ . | quote }}
{{- end }}
{{- end -}}
