{{/* What the operator may do, and no more: no nodes, Secrets, ConfigMaps, pods/log or pods/exec. */}}
{{- define "trainyard.rules" -}}
- apiGroups: [trainyard.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]  # delete: ttlSecondsAfterFinished
- apiGroups: [trainyard.dev]
  resources: [trainingjobs/status]
  verbs: [patch]
- apiGroups: [trainyard.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* For spec.scheduling.gang: PodGroups of the kinds that are switched on; empty without any. */}}
{{- define "trainyard.gangRules" -}}
{{- $groups := dict "native" "scheduling.k8s.io" "volcano" "scheduling.volcano.sh" "coscheduling" "scheduling.x-k8s.io" -}}
{{- range $gang, $on := .Values.gangs }}
{{- if $on }}
- apiGroups: [{{ get $groups $gang }}]
  resources: [podgroups]
  verbs: [get, list, create, delete]  # {{ $gang }}
{{- end }}
{{- end }}
{{- end }}

{{/*
A role and its binding: of the cluster, or of the one namespace that is watched.
Takes (dict "root" . "name" NAME "rules" RULES).
*/}}
{{- define "trainyard.grant" -}}
{{- $root := .root -}}
{{- $watched := include "trainyard.watched" $root -}}
{{- $kind := ternary "Role" "ClusterRole" (ne $watched "") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name | toYaml }}
  {{- with $watched }}
  namespace: {{ . | toYaml }}
  {{- end }}
  labels:
    {{- include "trainyard.labels" $root | nindent 4 }}
rules:
{{ .rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name | toYaml }}
  {{- with $watched }}
  namespace: {{ . | toYaml }}
  {{- end }}
  labels:
    {{- include "trainyard.labels" $root | nindent 4 }}
{{ include "trainyard.binding" (list $root $kind .name) }}
{{- end }}
