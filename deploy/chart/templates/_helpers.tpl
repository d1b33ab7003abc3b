{{- define "hyperscout.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "hyperscout.collector" -}}{{ include "hyperscout.fullname" . }}-collector{{- end -}}
{{- define "hyperscout.agent" -}}{{ include "hyperscout.fullname" . }}-agent{{- end -}}
{{- define "hyperscout.fabric" -}}{{ include "hyperscout.fullname" . }}-fabric{{- end -}}

{{/* Labels of the pod selectors; they must never change. Call with (list $ "collector"). */}}
{{- define "hyperscout.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ default $.Chart.Name $.Values.nameOverride }}
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "hyperscout.labels" -}}
{{- $ := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: hyperscout
{{ include "hyperscout.selector" . }}
{{- with $.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Call with (list $ "agent"). */}}
{{- define "hyperscout.image" -}}
{{- $ := index . 0 -}}
{{- $image := index $.Values.image (index . 1) -}}
{{- with $.Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $.Chart.AppVersion $image.tag }}{{ end }}
{{- end -}}

{{/* Call with (list $ "agent"). */}}
{{- define "hyperscout.serviceAccount" -}}
{{- $ := index . 0 -}}
{{- $account := (index $.Values (index . 1)).serviceAccount -}}
{{- if $account.name -}}{{ $account.name }}
{{- else -}}{{ ternary (include (printf "hyperscout.%s" (index . 1)) $) "default" $account.create }}
{{- end -}}
{{- end -}}

{{/* Whether a second DaemonSet of agents has InfiniBand devices. */}}
{{- define "hyperscout.infiniband" -}}
{{- with .Values.agent.infiniband }}{{ if or .resourceName .resourceClaimTemplate }}true{{ end }}{{ end -}}
{{- end -}}

{{/* Labels of the nodes of that DaemonSet, as JSON. The Network Operator's rule for node feature discovery sets the default. */}}
{{- define "hyperscout.infinibandNodes" -}}
{{- .Values.agent.infiniband.nodeSelector | default (dict "feature.node.kubernetes.io/pci-15b3.present" "true") | toJson -}}
{{- end -}}

{{/*
Affinity of a DaemonSet of agents, as JSON. Call with (list $ true) for the one with InfiniBand devices: of all nodes that
agent.affinity allows it gets those with all labels, and the other one gets the rest. Kubernetes joins terms by OR, so the
rest has a term for each term of agent.affinity and each label.
*/}}
{{- define "hyperscout.agentAffinity" -}}
{{- $ := index . 0 -}}{{- $devices := index . 1 -}}
{{- $affinity := deepCopy (default dict $.Values.agent.affinity) -}}
{{- if include "hyperscout.infiniband" $ -}}
{{- $all := list -}}{{- $rest := list -}}
{{- range $key, $value := include "hyperscout.infinibandNodes" $ | fromJson -}}
{{- $all = append $all (dict "key" $key "operator" "In" "values" (list $value)) -}}
{{- $rest = append $rest (list (dict "key" $key "operator" "NotIn" "values" (list $value))) -}}
{{- end -}}
{{- $node := default dict $affinity.nodeAffinity -}}
{{- $given := (default dict $node.requiredDuringSchedulingIgnoredDuringExecution).nodeSelectorTerms -}}
{{- $terms := list -}}
{{- range $term := default (list dict) $given -}}
{{- $term = default dict $term -}}
{{- if or (not $given) $term.matchExpressions $term.matchFields -}}{{/* an empty term selects no node */}}
{{- range ternary (list $all) $rest $devices -}}
{{- $terms = append $terms (set (deepCopy $term) "matchExpressions" (concat (default list $term.matchExpressions) .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $required := dict "nodeSelectorTerms" (default $given $terms) -}}
{{- $_ := set $affinity "nodeAffinity" (set $node "requiredDuringSchedulingIgnoredDuringExecution" $required) -}}
{{- end -}}
{{- $affinity | toJson -}}
{{- end -}}

{{/* Namespace of the plans of gangs. */}}
{{- define "hyperscout.gangs" -}}{{ default (printf "%s-gangs" (include "hyperscout.fullname" .)) .Values.gates.namespace.name }}{{- end -}}

{{/* Whether the collector opens gates: it may then patch and delete pods. */}}
{{- define "hyperscout.opens" -}}{{ if and (eq .Values.publish.hyperNodes "publish") (eq .Values.gates.mode "on") }}true{{ end }}{{- end -}}

{{/*
CEL: the keys that differ between two maps, without the keys k for which a condition holds.
Call with (list "OLD" "NEW" "CONDITION").
*/}}
{{- define "hyperscout.changed" -}}
{{- $old := index . 0 -}}{{- $new := index . 1 -}}{{- $free := index . 2 -}}
{{ $old }}.filter(k, !({{ $free }}) && !(k in {{ $new }} && {{ $new }}[k] == {{ $old }}[k])) + {{ $new }}.filter(k, !({{ $free }}) && !(k in {{ $old }}))
{{- end -}}

{{- define "hyperscout.dnsPorts" -}}
{{- range .Values.networkPolicy.dnsPorts }}
- {port: {{ . }}, protocol: UDP}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end -}}

{{- define "hyperscout.tlsSecret" -}}
{{ default (printf "%s-tls" (include "hyperscout.fullname" .)) .Values.tls.secretName }}
{{- end -}}

{{/*
Whether the Secret holds a CA from which collectors issue their own certificates. A Secret that an earlier version of the
chart made holds a certificate for ten years, and the key of its CA is lost.
*/}}
{{- define "hyperscout.issues" -}}
{{- if eq .Values.tls.mode "helm" -}}
{{- $data := default dict (lookup "v1" "Secret" .Release.Namespace (include "hyperscout.tlsSecret" .)).data -}}
{{- if eq (toString (index $data "tls.crt")) (toString (index $data "ca.crt")) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* The name in the certificate: agents expect it at any address. */}}
{{- define "hyperscout.serverName" -}}
{{ include "hyperscout.collector" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* DNS names of the certificate, as a JSON list. */}}
{{- define "hyperscout.dnsNames" -}}
{{- $name := include "hyperscout.collector" . -}}
{{- $names := list (include "hyperscout.serverName" .) $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) "localhost" -}}
{{- concat $names .Values.tls.extraNames | toJson -}}
{{- end -}}

{{- define "hyperscout.addresses" -}}
{{- concat (list "127.0.0.1") .Values.tls.extraAddresses | toJson -}}
{{- end -}}

{{- define "hyperscout.tls" -}}{{ if ne .Values.tls.mode "insecure" }}true{{ end }}{{- end -}}
{{- define "hyperscout.tokens" -}}{{ if eq .Values.authenticate "kubernetes" }}true{{ end }}{{- end -}}

{{/* "host:port" to listen on, for (list $ 50051). */}}
{{- define "hyperscout.anyAddress" -}}
{{- ternary "[::]" "0.0.0.0" (eq (index . 0).Values.ipFamily "IPv6") }}:{{ index . 1 }}
{{- end -}}

{{/* What can only be wrong in combination. */}}
{{/* The ConfigMap with the blueprint; "" if there is none. */}}
{{- define "hyperscout.blueprint" -}}
{{- if .Values.collector.blueprint.text }}{{ include "hyperscout.collector" . }}-blueprint{{ else }}{{ .Values.collector.blueprint.configMap }}{{ end }}
{{- end -}}

{{- define "hyperscout.check" -}}
{{- if and .Values.collector.blueprint.text .Values.collector.blueprint.configMap -}}
{{- fail "collector.blueprint: give text or configMap, not both" -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "insecure") (eq .Values.authenticate "kubernetes") -}}
{{- fail "tls.mode insecure: tokens are never sent in plaintext; set authenticate: none too, or another tls.mode" -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "certManager") (not .Values.tls.certManager.issuerRef) -}}
{{- fail "tls.mode certManager: set tls.certManager.issuerRef, as in {name: internal-ca, kind: ClusterIssuer}" -}}
{{- end -}}
{{- if and (hasPrefix "mqtts:" .Values.collector.mqtt.broker) (not .Values.collector.mqtt.caSecret) -}}
{{- fail "collector.mqtt: the image contains no CA certificates; set collector.mqtt.caSecret to a Secret with ca.crt" -}}
{{- end -}}
{{- with .Values.collector.store.postgresql }}
{{- if and .url (not .caSecret) (not (contains "sslmode=" .url)) -}}
{{- fail "collector.store.postgresql: set caSecret to a Secret with ca.crt, or sslmode in url" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.gates.admissionPolicy (ne .Values.gates.mode "on") -}}
{{- fail "gates.admissionPolicy: without gates.mode \"on\" the collector never opens the gates that it adds; set gates.mode: \"on\" too" -}}
{{- end -}}
{{- if and (ne .Values.gates.onDegradation.action "off") (ne .Values.gates.mode "on") -}}
{{- fail "gates.onDegradation.action: only gangs behind gates are watched; set gates.mode: \"on\" too" -}}
{{- end -}}
{{- if and (gt (float64 .Values.gates.defragment.everySeconds) 0.0) (eq .Values.gates.mode "off") -}}
{{- fail "gates.defragment.everySeconds: only gangs behind gates are planned for; set gates.mode too, or everySeconds: 0" -}}
{{- end -}}
{{- if and (eq .Values.gates.mode "on") (ne .Values.publish.hyperNodes "publish") -}}
{{- fail "gates.mode: \"on\" needs publish.hyperNodes: publish" -}}
{{- end -}}
{{- if and (ne .Values.gates.mode "off") .Values.collector.clusters -}}
{{- fail "gates.mode: gates know the free resources of one cluster only; set gates.mode: off, or remove collector.clusters" -}}
{{- end -}}
{{- if has .Values.gates.namespace.name (list .Release.Namespace "default" "kube-system") -}}
{{- fail (printf "gates.namespace.name: %s holds other objects, and the collector gets the right to write ConfigMaps there, which must not reach settings; name a namespace that holds nothing else" .Values.gates.namespace.name) -}}
{{- end -}}
{{- range $port := list "mtls" "estimator" -}}
{{- if (get $.Values.collector $port).enabled -}}
{{- if eq $.Values.tls.mode "insecure" -}}
{{- fail (printf "collector.%s.enabled needs a certificate: set another tls.mode than insecure" $port) -}}
{{- end -}}
{{- if not $.Values.collector.mtls.clientCaSecret -}}
{{- fail (printf "collector.%s.enabled: set collector.mtls.clientCaSecret, a Secret with the ca.crt of the clients' certificates" $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.collector.estimator.enabled (not .Values.collector.estimator.cluster) (not .Values.collector.clusters) -}}
{{- fail "collector.estimator.enabled: set collector.estimator.cluster, the name of this cluster in Karmada" -}}
{{- end -}}
{{- if and .Values.collector.rest.ingress.enabled (not .Values.collector.rest.enabled) -}}
{{- fail "collector.rest.ingress.enabled: the ingress needs REST; set collector.rest.enabled: true too" -}}
{{- end -}}
{{- if and .Values.collector.rest.ingress.enabled (not .Values.collector.rest.ingress.host) -}}
{{- fail "collector.rest.ingress.enabled: set collector.rest.ingress.host" -}}
{{- end -}}
{{- if eq .Values.collector.data.kind "claim" -}}
{{- if gt (int .Values.collector.replicas) 1 -}}
{{- fail "collector.data.kind claim: replicas cannot share their evidence; set collector.replicas: 1, or data.kind: ephemeral" -}}
{{- end -}}
{{- if not .Values.collector.data.claimName -}}
{{- fail "collector.data.kind claim: set collector.data.claimName" -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.authenticate "kubernetes") (not .Values.agent.serviceAccount.create) (not .Values.agent.serviceAccount.name) -}}
{{- fail "agent.serviceAccount.create false: set agent.serviceAccount.name; with the account default every pod there could report" -}}
{{- end -}}
{{- if .Values.fabric.enabled -}}
{{- if not .Values.fabric.settings -}}
{{- fail "fabric.enabled: no switch or manager is configured; set fabric.settings, as in {snmp: {access: [...]}}" -}}
{{- end -}}
{{- $account := include "hyperscout.serviceAccount" (list . "fabric") -}}
{{- if and (eq .Values.authenticate "kubernetes") (has $account (list "default" (include "hyperscout.serviceAccount" (list . "agent")))) -}}
{{- fail "fabric.serviceAccount: it needs an account that no other pod has; set fabric.serviceAccount.name" -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.collector.service.type "ClusterIP" -}}
{{- range $name, $port := default dict .Values.collector.service.nodePorts -}}
{{- if $port -}}
{{- fail (printf "collector.service.nodePorts.%s: a Service of type ClusterIP has no port on nodes; set collector.service.type: NodePort or LoadBalancer too" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ib := .Values.agent.infiniband -}}
{{- if and $ib.resourceName $ib.resourceClaimTemplate -}}
{{- fail "agent.infiniband: give resourceName (a device plugin's) or resourceClaimTemplate (a DRA driver's), not both" -}}
{{- end -}}
{{- if and $ib.nodeSelector (not (include "hyperscout.infiniband" .)) -}}
{{- fail "agent.infiniband.nodeSelector has no effect alone; set agent.infiniband.resourceName or agent.infiniband.resourceClaimTemplate too" -}}
{{- end -}}
{{- if not (kindIs "invalid" $ib.enabled) -}}
{{- if and $ib.enabled (not (include "hyperscout.infiniband" .)) -}}
{{- fail "agent.infiniband.enabled is retired: set agent.infiniband.resourceName (a device plugin's) or agent.infiniband.resourceClaimTemplate (a DRA driver's); where agent.extraVolumes brings the devices, set agent.settings.ibnetdiscover.enabled: true. Then remove agent.infiniband.enabled" -}}
{{- else if and (not $ib.enabled) (include "hyperscout.infiniband" .) -}}
{{- fail "agent.infiniband.enabled is retired: agent.infiniband.resourceName or agent.infiniband.resourceClaimTemplate alone turns sweeps on; remove agent.infiniband.enabled, or these two to turn sweeps off" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the CA of client certificates; "" if no port needs it. */}}
{{- define "hyperscout.clientCa" -}}
{{- with .Values.collector }}
{{- if or .mtls.enabled .estimator.enabled }}{{ .mtls.clientCaSecret }}{{ end }}
{{- end }}
{{- end -}}

{{/* Secrets for PostgreSQL as sources of one volume; "" where there are none. */}}
{{- define "hyperscout.postgresqlSecrets" -}}
{{- with .Values.collector.store.postgresql }}
{{- if .url }}
{{- with .passwordSecret }}
- secret: {name: {{ . }}, items: [{key: password, path: password}]}
{{- end }}
{{- with .caSecret }}
- secret: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with .clientSecret }}
- secret: {name: {{ . }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Secrets for the MQTT broker as sources of one volume; "" where there are none. */}}
{{- define "hyperscout.mqttSecrets" -}}
{{- with .Values.collector.mqtt }}
{{- if .broker }}
{{- with .passwordSecret }}
- secret: {name: {{ . }}, items: [{key: password, path: password}]}
{{- end }}
{{- with .caSecret }}
- secret: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with .clientSecret }}
- secret: {name: {{ . }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
