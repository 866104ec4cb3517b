{{/* The webhooks that a revision, or one of its tags, injects pods with. root: the chart; name: the value of istio.io/rev; default: whether
istio-injection=enabled counts, too. */}}
{{- define "pilot.injection" }}
{{- $v := include "pilot.values" .root | fromJson }}
{{- $enabled := dict "key" "istio-injection" "operator" "In" "values" (list "enabled") }}
{{- $unlabelled := dict "key" "istio-injection" "operator" "DoesNotExist" }}
{{- $noRevision := dict "key" "istio.io/rev" "operator" "DoesNotExist" }}
{{- $ofName := dict "key" "istio.io/rev" "operator" "In" "values" (list .name) }}
{{- $notDeclined := dict "key" "sidecar.istio.io/inject" "operator" "NotIn" "values" (list "false") }}
{{- $asked := dict "key" "sidecar.istio.io/inject" "operator" "In" "values" (list "true") }}
{{- $silent := dict "key" "sidecar.istio.io/inject" "operator" "DoesNotExist" }}
{{- $ordinary := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease" "local-path-storage") }}
{{- include "pilot.injecting" (dict "root" .root "name" "rev.namespace" "namespaces" (list $ofName $unlabelled) "pods" (list $notDeclined)) }}
{{- include "pilot.injecting" (dict "root" .root "name" "rev.object" "namespaces" (list $unlabelled $noRevision) "pods" (list $notDeclined $ofName)) }}
{{- if .default }}
{{- include "pilot.injecting" (dict "root" .root "name" "namespace" "namespaces" (list $enabled) "pods" (list $notDeclined)) }}
{{- include "pilot.injecting" (dict "root" .root "name" "object" "namespaces" (list $unlabelled $noRevision) "pods" (list $asked $noRevision)) }}
{{- if $v.sidecarInjectorWebhook.enableNamespacesByDefault }}
{{- include "pilot.injecting" (dict "root" .root "name" "auto" "namespaces" (list $unlabelled $noRevision $ordinary) "pods" (list $silent $noRevision)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pilot.injecting" }}
{{- $v := include "pilot.values" .root | fromJson }}
- name: {{ .name }}.sidecar-injector.istio.io
  clientConfig: {service: {name: {{ include "pilot.name" .root }}, namespace: {{ .root.Release.Namespace }}, path: /inject, port: 443}}
  namespaceSelector:
    matchExpressions:
    {{- toYaml .namespaces | nindent 4 }}
  objectSelector:
    matchExpressions:
    {{- toYaml .pods | nindent 4 }}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: "*"}
  sideEffects: None
  admissionReviewVersions: [v1]
  reinvocationPolicy: {{ $v.sidecarInjectorWebhook.reinvocationPolicy }}
  matchPolicy: Equivalent
  failurePolicy: Fail
  timeoutSeconds: 10
{{- end }}

{{/* The webhooks that check objects with labels. The control plane sets the failurePolicy of the first one to Fail once a test of it has
succeeded. The second one, for its own namespace, never blocks: an object there may be needed to repair the control plane. */}}
{{- define "pilot.validation" }}
{{- include "pilot.checking" (dict "root" .root "name" .name "operator" "NotIn" "objects" .objects) }}
{{- include "pilot.checking" (dict "root" .root "name" (print "own." .name) "operator" "In" "objects" .objects) }}
{{- end }}

{{- define "pilot.checking" }}
- name: {{ .name }}.istio.io
  clientConfig: {service: {name: {{ include "pilot.name" .root }}, namespace: {{ .root.Release.Namespace }}, path: /validate, port: 443}}
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: {{ .operator }}, values: [{{ .root.Release.Namespace }}]}
  {{- with .objects }}
  objectSelector:
    matchExpressions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
  - apiGroups: [networking.istio.io, security.istio.io, telemetry.istio.io, extensions.istio.io]
    apiVersions: ["*"]
    resources: ["*"]
    operations: [CREATE, UPDATE]
    scope: "*"
  sideEffects: None
  admissionReviewVersions: [v1]
  matchPolicy: Equivalent
  failurePolicy: Ignore
  timeoutSeconds: 10
{{- end }}
