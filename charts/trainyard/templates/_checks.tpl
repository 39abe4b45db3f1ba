{{/* Values that are each allowed, and cannot be had together. What one value alone may be is in values.schema.json. */}}
{{- define "trainyard.checks" -}}
{{- $v := .Values -}}
{{- if and (not $v.leaderElection) (gt (int $v.replicas) 1) -}}
{{- fail (printf "replicas: %d is not allowed with leaderElection: false, since all of them would work at once; allowed: 1" (int $v.replicas)) -}}
{{- end -}}
{{- if and $v.scope.namespace (not $v.scope.namespaced) -}}
{{- fail (printf "scope.namespace: %s is not allowed with scope.namespaced: false, which watches all namespaces; allowed: no name, or scope.namespaced: true" $v.scope.namespace) -}}
{{- end -}}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- fail "serviceAccount.name: needed with serviceAccount.create: false; allowed: the name of an account that is there" -}}
{{- end -}}
{{- if and $v.monitoring.serviceMonitor.enabled (not $v.metrics.service.enabled) -}}
{{- fail "monitoring.serviceMonitor.enabled: true is not allowed with metrics.service.enabled: false, since a ServiceMonitor selects a Service; allowed: false, or the Service" -}}
{{- end -}}
{{- if and $v.networkPolicy.egress.enabled (not $v.networkPolicy.enabled) -}}
{{- fail "networkPolicy.egress.enabled: true is not allowed with networkPolicy.enabled: false, which makes no policy at all; allowed: false, or the policy" -}}
{{- end -}}
{{- $watched := include "trainyard.watched" . -}}
{{- range $namespace := $v.networkPolicy.workers.namespaces -}}
{{- if and $watched (ne $namespace $watched) -}}
{{- fail (printf "networkPolicy.workers.namespaces: %s is not allowed, since this operator has workers in one namespace alone; allowed: %s" $namespace $watched) -}}
{{- end -}}
{{- end -}}
{{- $fullname := include "trainyard.fullname" . -}}
{{- if and $v.metrics.service.enabled (not (regexMatch "^[a-z]" $fullname)) -}}
{{- fail (printf "fullnameOverride: needed for %s, since the name of a Service begins with a letter; allowed: such a name, or metrics.service.enabled: false" $fullname) -}}
{{- end -}}
{{- range $value, $labels := dict "commonLabels" $v.commonLabels "podLabels" $v.podLabels -}}
{{- range $key := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- if hasKey $labels $key -}}
{{- fail (printf "%s: %s is not allowed, since the chart sets it; allowed: other labels, and nameOverride for the name" $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "^(127\\.|\\[(::1|::ffff:127\\.[0-9.]*)\\])" $v.metrics.address -}}
{{- fail (printf "metrics.address: %s is not allowed, since the kubelet's probes come from outside of the pod; allowed: 0.0.0.0, [::], or an address of the pod" $v.metrics.address) -}}
{{- end -}}
{{- end }}
