{{/* Names, labels and what else several templates say. */}}

{{- define "trainyard.name" -}}
{{ .Values.nameOverride | default "trainyard" | trunc 50 | trimAll "-" }}
{{- end }}

{{/* Of every object: trainyard-operator for a release that is called trainyard. */}}
{{- define "trainyard.fullname" -}}
{{- $name := include "trainyard.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimAll "-" }}
{{- else if contains $name .Release.Name -}}
{{ printf "%s-operator" (.Release.Name | replace "." "-" | trunc 41 | trimAll "-") }}
{{- else -}}
{{ printf "%s-operator" (printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 41 | trimAll "-") }}
{{- end -}}
{{- end }}

{{/* What the operator's pods are found by. Never changes: a Deployment's selector cannot. */}}
{{- define "trainyard.selector" -}}
app.kubernetes.io/name: {{ include "trainyard.name" . | toYaml }}
app.kubernetes.io/instance: {{ .Release.Name | toYaml }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "trainyard.labels" -}}
{{ include "trainyard.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "trainyard.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "trainyard.fullname" .) }}
{{- end }}

{{/* The only namespace with jobs for this operator; empty: all of them. */}}
{{- define "trainyard.watched" -}}
{{- if .Values.scope.namespaced -}}
{{ .Values.scope.namespace | default .Release.Namespace }}
{{- end -}}
{{- end }}

{{- define "trainyard.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* A worker's port, and its label: operator/reconcile/worker_pod.h, operator/api/labels.h. */}}
{{- define "trainyard.workerPort" -}}9460{{- end }}
{{- define "trainyard.workerLabels" -}}
trainyard.dev/managed: "true"
{{- end }}

{{/* Binds a role to the operator. Takes (list root kind name). */}}
{{- define "trainyard.binding" -}}
{{- $root := index . 0 -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ index . 2 | toYaml }}
subjects:
- kind: ServiceAccount
  name: {{ include "trainyard.serviceAccount" $root | toYaml }}
  namespace: {{ $root.Release.Namespace | toYaml }}
{{- end }}
