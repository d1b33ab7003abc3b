{{/* The settings files. A pod has the checksum of its own file, so that only a change of that file restarts it. */}}
{{- define "hyperscout.collectorSettings" -}}
{{- $c := dict
  "listen" (include "hyperscout.anyAddress" (list . 50051))
  "http_listen" (include "hyperscout.anyAddress" (list . 50052))
  "rest_listen" (ternary (include "hyperscout.anyAddress" (list . 50080)) "" .Values.collector.rest.enabled)
  "data_dir" "/var/lib/hyperscout"
  "kubernetes" .Values.publish.hyperNodes
  "deployment" (include "hyperscout.collector" .)
  "leader_election" true
  "lease_namespace" .Release.Namespace
  "lease_name" (include "hyperscout.collector" .)
  "authenticate" .Values.authenticate
  "node_labels" .Values.publish.nodeLabels
  "taints" .Values.publish.taints
  "node_conditions" .Values.publish.nodeConditions
  "dra" .Values.publish.dra
  "dra_taints" .Values.publish.draTaints
  "kueue_topology" .Values.publish.kueueTopology
  "slinky_config_map" .Values.publish.slinkyConfigMap
  "gates" .Values.gates.mode
  "gates_namespace" (include "hyperscout.gangs" .)
  "gates_replace_after_s" .Values.gates.replaceAfterSeconds
  "gates_hot_swap" .Values.gates.hotSwap
  "gates_pod_labels" .Values.gates.podLabels
  "gates_on_degradation" .Values.gates.onDegradation.action
  "gates_degraded_wait_s" .Values.gates.onDegradation.waitSeconds
  "gates_moves_per_hour" .Values.gates.onDegradation.movesPerHour
  "gates_hook_timeout_s" .Values.gates.onDegradation.hookTimeoutSeconds
  "gates_drain_after_s" .Values.gates.drainAfterSeconds
  "gates_defragment_every_s" .Values.gates.defragment.everySeconds
  "gates_defragment_most_moves" .Values.gates.defragment.mostMoves
}}
{{- if include "hyperscout.tls" . }}
{{- if include "hyperscout.issues" . }}
{{- $_ := set $c "tls_issuer_cert" "/etc/hyperscout/tls/tls.crt" }}
{{- $_ := set $c "tls_issuer_key" "/etc/hyperscout/tls/tls.key" }}
{{- $_ := set $c "tls_names" (concat (include "hyperscout.dnsNames" . | fromJsonArray) (include "hyperscout.addresses" . | fromJsonArray)) }}
{{- $_ := set $c "tls_cert" "/run/hyperscout/tls.crt" }}
{{- $_ := set $c "tls_key" "/run/hyperscout/tls.key" }}
{{- else }}
{{- $_ := set $c "tls_cert" "/etc/hyperscout/tls/tls.crt" }}
{{- $_ := set $c "tls_key" "/etc/hyperscout/tls/tls.key" }}
{{- end }}
{{- /* A standby replica reaches the leader at its pod's address, which no certificate contains. */ -}}
{{- $_ := set $c "peer_tls_ca" "/etc/hyperscout/tls/ca.crt" }}
{{- $_ := set $c "peer_tls_server_name" (include "hyperscout.serverName" .) }}
{{- end }}
{{- if include "hyperscout.blueprint" . }}
{{- $_ := set $c "blueprint" "/etc/hyperscout/blueprint/blueprint.yaml" }}
{{- end }}
{{- $clusters := list }}
{{- range .Values.collector.clusters }}
{{- $clusters = append $clusters (printf "%s=/etc/hyperscout/clusters/%s/kubeconfig" .name .name) }}
{{- end }}
{{- if $clusters }}
{{- $_ := set $c "clusters" $clusters }}
{{- end }}
{{- if .Values.collector.mtls.enabled }}
{{- $_ := set $c "mtls_listen" (include "hyperscout.anyAddress" (list . 50054)) }}
{{- end }}
{{- if .Values.collector.estimator.enabled }}
{{- $_ := set $c "estimator_listen" (include "hyperscout.anyAddress" (list . 10352)) }}
{{- $_ := set $c "estimator_cluster" .Values.collector.estimator.cluster }}
{{- end }}
{{- if include "hyperscout.clientCa" . }}
{{- $_ := set $c "tls_client_ca" "/etc/hyperscout/clients/ca.crt" }}
{{- end }}
{{- with .Values.collector.mqtt }}
{{- if .broker }}
{{- $_ := set $c "mqtt_broker" .broker }}
{{- $_ := set $c "mqtt_topic_prefix" .topicPrefix }}
{{- $_ := set $c "mqtt_user" .user }}
{{- $_ := set $c "mqtt_devices" .devices }}
{{- if .passwordSecret }}
{{- $_ := set $c "mqtt_password_file" "/etc/hyperscout/mqtt/password" }}
{{- end }}
{{- if .caSecret }}
{{- $_ := set $c "mqtt_tls_ca" "/etc/hyperscout/mqtt/ca.crt" }}
{{- end }}
{{- if .clientSecret }}
{{- $_ := set $c "mqtt_tls_cert" "/etc/hyperscout/mqtt/tls.crt" }}
{{- $_ := set $c "mqtt_tls_key" "/etc/hyperscout/mqtt/tls.key" }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.collector.store.postgresql }}
{{- if .url }}
{{- $tls := list }}
{{- if .caSecret }}
{{- $tls = list "sslmode=verify-full" "sslrootcert=/etc/hyperscout/postgresql/ca.crt" }}
{{- end }}
{{- if .clientSecret }}
{{- $tls = concat $tls (list "sslcert=/etc/hyperscout/postgresql/tls.crt" "sslkey=/etc/hyperscout/postgresql/tls.key") }}
{{- end }}
{{- $_ := set $c "store" (join (contains "?" .url | ternary "&" "?") (compact (list .url (join "&" $tls)))) }}
{{- if .passwordSecret }}
{{- $_ := set $c "store_password_file" "/etc/hyperscout/postgresql/password" }}
{{- end }}
{{- end }}
{{- end }}
{{- if include "hyperscout.tokens" . }}
{{- $_ := set $c "token_audience" .Values.tokenAudience }}
{{- $_ := set $c "peer_token_file" "/var/run/secrets/hyperscout/token" }}
{{- $_ := set $c "agent_service_account" (printf "%s:%s" .Release.Namespace (include "hyperscout.serviceAccount" (list . "agent"))) }}
{{- if .Values.fabric.enabled }}
{{- $_ := set $c "fabric_service_account" (printf "%s:%s" .Release.Namespace (include "hyperscout.serviceAccount" (list . "fabric"))) }}
{{- end }}
{{- else }}
{{- $_ := set $c "insecure" true }}
{{- /* Without authentication, the list of hosts prevents DNS rebinding by pages of other sites. */ -}}
{{- $_ := set $c "rest_hosts" (concat (include "hyperscout.dnsNames" . | fromJsonArray) .Values.collector.rest.hosts (list .Values.collector.rest.ingress.host) | compact | uniq) }}
{{- end }}
{{- toYaml (merge (dict) $c .Values.collector.settings) }}
{{- end -}}

{{- define "hyperscout.agentSettings" -}}
{{- $a := dict
  "collectors" (.Values.agent.collectorAddresses | default (list (printf "%s:50051" (include "hyperscout.serverName" .))))
  "lldp" (dict "enabled" .Values.agent.lldp.enabled "source" "listener" "socket" "/run/hyperscout/lldp.sock" "spawn_listener" false)
  "nvlink" (dict "enabled" .Values.agent.nvml.enabled)
}}
{{- if .Values.agent.podResources.enabled }}
{{- $_ := set $a "pod_resources" (dict "enabled" true "socket" "/run/hyperscout/pod-resources.sock") }}
{{- end }}
{{- /* If it is exposed, a variable has the address of the node. */ -}}
{{- $metrics := dict "port" (int .Values.agent.metrics.port) }}
{{- if not .Values.agent.metrics.expose }}
{{- $_ := set $metrics "host" "127.0.0.1" }}
{{- end }}
{{- $_ := set $a "metrics" $metrics }}
{{- if include "hyperscout.tls" . }}
{{- $_ := set $a "tls_ca" "/etc/hyperscout/tls/ca.crt" }}
{{- $_ := set $a "tls_server_name" (default (include "hyperscout.serverName" .) .Values.agent.tlsServerName) }}
{{- else }}
{{- $_ := set $a "insecure" true }}
{{- end }}
{{- if include "hyperscout.tokens" . }}
{{- $_ := set $a "token_file" "/var/run/secrets/hyperscout/token" }}
{{- end }}
{{- /* A variable of the DaemonSet with InfiniBand devices turns sweeps on. The others need devices or tools. */ -}}
{{- $off := dict "ibnetdiscover" (dict "enabled" false) "xgmi" (dict "enabled" false) "ascend" (dict "enabled" false) }}
{{- toYaml (merge (dict) $a .Values.agent.settings $off) }}
{{- end -}}

{{- /* It reports under the name of its account, which its token proves. */ -}}
{{- define "hyperscout.fabricSettings" -}}
{{- $f := dict
  "role" "fabric"
  "node" (include "hyperscout.serviceAccount" (list . "fabric"))
  "collectors" (list (printf "%s:50051" (include "hyperscout.serverName" .)))
  "metrics" (dict "host" (ternary "::" "0.0.0.0" (eq .Values.ipFamily "IPv6")) "port" 50053)
}}
{{- if include "hyperscout.tls" . }}
{{- $_ := set $f "tls_ca" "/etc/hyperscout/tls/ca.crt" }}
{{- $_ := set $f "tls_server_name" (include "hyperscout.serverName" .) }}
{{- else }}
{{- $_ := set $f "insecure" true }}
{{- end }}
{{- if include "hyperscout.tokens" . }}
{{- $_ := set $f "token_file" "/var/run/secrets/hyperscout/token" }}
{{- end }}
{{- toYaml (merge (dict) $f .Values.fabric.settings) }}
{{- end -}}
