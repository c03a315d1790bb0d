{{- define "gantry.labels" -}}
app.kubernetes.io/name: gantry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "gantry.selector" -}}
app.kubernetes.io/name: gantry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "gantry.operator" -}}
{{ .Release.Name }}-operator
{{- end }}

{{- define "gantry.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The namespaces that are served, with commas between them; nothing where all are. */ -}}
{{- define "gantry.served" -}}
{{- if not .Values.operator.allNamespaces -}}
{{- .Values.operator.namespaces | default (list .Release.Namespace) | join "," -}}
{{- else if .Values.operator.namespaces -}}
{{- fail "operator.allNamespaces is true, and operator.namespaces names some of them: keep one of the two" -}}
{{- end -}}
{{- end }}

{{- /* Fails where an upgrade would leave resources of ours to nobody, and none would say so. What is served until now is
in the Deployment; an operator of no replica serves nothing. Where no API server is asked, as by `helm template`, nothing
is found. */ -}}
{{- define "gantry.leavesNone" -}}
{{- $after := include "gantry.served" . -}}
{{- $running := lookup "apps/v1" "Deployment" .Release.Namespace (include "gantry.operator" .) -}}
{{- if and $after $running (gt (int (dig "spec" "replicas" 0 $running)) 0) -}}
{{- $after = splitList "," $after -}}
{{- $before := list "" -}}{{- /* looked up as such, it is all of them */ -}}
{{- range (first $running.spec.template.spec.containers).env -}}
{{- if eq .name "GANTRY_NAMESPACES" -}}{{- $before = splitList "," (default "" .value) -}}{{- end -}}
{{- end -}}
{{- $left := list -}}
{{- range $kind := list "ControllerGroup" "BrokerGroup" "FrontGroup" "Topic" "MessageUser" "ConsumerGroup" -}}
{{- range $namespace := $before -}}
{{- range (lookup "mq.gantry.dev/v1alpha1" $kind $namespace "").items -}}
{{- if not (has .metadata.namespace $after) -}}{{- $left = append $left .metadata.namespace -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $left | uniq | sortAlpha -}}
{{- fail (printf "the operator serves resources in namespaces %s, and would leave them to nobody: set operator.allNamespaces to true or name those namespaces in operator.namespaces, or upgrade with operator.replicas=0 first if they are another operator's from now on" (join ", " .)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Whether the operator's own namespace is being deleted: asked at the operator's end, when it lets go what is in there. */ -}}
{{- define "gantry.home" -}}
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [{{ .Release.Namespace }}]
  verbs: [get]
{{- end }}

{{- /* What the operator may do with the objects it reconciles: the same list as a Role per namespace or as a ClusterRole. */ -}}
{{- define "gantry.rules" -}}
- apiGroups: [mq.gantry.dev]
  resources: [controllergroups, brokergroups, frontgroups, topics, messageusers, consumergroups]
  verbs: [get, list, watch]
- apiGroups: [mq.gantry.dev]
  resources: [controllergroups, brokergroups, frontgroups, topics, messageusers, consumergroups]
  verbs: [patch] # finalizers: of what others depend on, of fronts, and of what deletes something in the cluster when it goes
- apiGroups: [mq.gantry.dev]
  resources: [controllergroups/status, brokergroups/status, frontgroups/status, topics/status, messageusers/status, consumergroups/status]
  verbs: [patch]
- apiGroups: [mq.gantry.dev]
  resources: [controllergroups/finalizers, brokergroups/finalizers, frontgroups/finalizers, messageusers/finalizers]
  verbs: [update] # owner references that block deletion
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments] # of fronts
  verbs: [get, list, watch, create, patch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers] # of fronts; deleted when spec.autoscaling.enabled is set to false
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services] # those of listeners are deleted with them
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [batch]
  resources: [cronjobs] # spec.pipeline.audit; deleted when it is taken out
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies] # deleted when spec.networkPolicy.enabled is set to false
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims] # by name: the mark of the quorum that a controller's volume is of, and sizes that grow
  verbs: [get, patch]
- apiGroups: [""]
  resources: [secrets] # of each quorum the admin API's bearer token and the key, and those of MessageUsers, made and read by name; read by name the certificates of controllers and listeners; never listed or changed
  verbs: [get, create]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete] # patch: the role label; delete: one at a time, with preconditions
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
