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
  resources: [services, configmaps]
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
  resources: [secrets] # of each quorum the admin API's bearer token and the key, and those of MessageUsers, made and read by name; read by name the controllers' certificates; never listed or changed
  verbs: [get, create]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete] # patch: the role label; delete: one at a time, with preconditions
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
