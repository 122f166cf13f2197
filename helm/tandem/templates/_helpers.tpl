{{/* Beginning of all names. */}}
{{- define "tandem.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $made := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $made .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- end }}

{{/* What finds the pods of a component, of this release alone: {root, component}. A release may be called `no` or `12`. */}}
{{- define "tandem.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of a thing: {root, component}, and extra ones. */}}
{{- define "tandem.labels" -}}
{{ include "tandem.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with merge (dict) (default dict .extra) .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* {root, repository, override}; override is a whole reference. */}}
{{- define "tandem.image" -}}
{{- $made := printf "%s:%s" .repository (default .root.Chart.AppVersion .root.Values.image.tag) }}
{{- with .root.Values.image.registry }}{{ $made = printf "%s/%s" (trimSuffix "/" .) $made }}{{ end }}
{{- default $made .override | quote }}
{{- end }}

{{- define "tandem.serviceAccountName" -}}
{{- default (ternary (include "tandem.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{/* Names of the TLS Secrets; empty: plaintext. */}}
{{- define "tandem.routerTls" -}}
{{- default (ternary (printf "%s-router-tls" (include "tandem.fullname" .)) "" .Values.tls.certManager.enabled) .Values.tls.router.secretName }}
{{- end }}
{{- define "tandem.gatewayTls" -}}
{{- default (ternary (printf "%s-gateway-tls" (include "tandem.fullname" .)) "" .Values.tls.certManager.enabled) .Values.tls.gateway.secretName }}
{{- end }}
{{- define "tandem.workersTls" -}}
{{- default (ternary (printf "%s-workers-tls" (include "tandem.fullname" .)) "" .Values.tls.certManager.enabled) .Values.tls.workers.secretName }}
{{- end }}

{{/* The components of which there are pods, as JSON. */}}
{{- define "tandem.components" -}}
{{- $components := list "router" "workers" }}
{{- if .Values.gateway.enabled }}{{ $components = append $components "gateway" }}{{ end }}
{{- toJson $components }}
{{- end }}

{{/* Who signs the certificate of a component, as JSON; {} where cert-manager makes none of it: {root, component}. */}}
{{- define "tandem.issuerRef" -}}
{{- $tls := .root.Values.tls }}
{{- $issuer := dict }}
{{- if and $tls.certManager.enabled (not (get $tls .component).secretName) }}
  {{- $issuer = $tls.certManager.issuerRef }}
  {{- if and (eq .component "workers") $tls.certManager.workersIssuerRef.name }}{{ $issuer = $tls.certManager.workersIssuerRef }}{{ end }}
{{- end }}
{{- toJson $issuer }}
{{- end }}

{{/* `yes` where the pod of `helm test` can be let in; else empty. */}}
{{- define "tandem.tests" -}}
{{- if or (not .Values.tls.router.mutual) .Values.test.clientSecretName }}yes{{ end }}
{{- end }}

{{/* Seconds without progress after which a rollout counts as failed: {root, component}. No sooner than the startup probe gives up; and a
     router is not ready before a verifier is, which may be loading, nor a gateway before a router. */}}
{{- define "tandem.progressSeconds" -}}
{{- $values := .root.Values }}
{{- $seconds := add $values.workers.startupSeconds 600 }}
{{- if ne .component "workers" }}{{ $seconds = add $seconds $values.router.startupSeconds }}{{ end }}
{{- if eq .component "gateway" }}{{ $seconds = add $seconds $values.gateway.startupSeconds }}{{ end }}
{{- if eq $values.models.source "initContainer" }}{{ $seconds = add $seconds $values.models.initContainer.seconds }}{{ end }}
{{- $seconds }}
{{- end }}

{{/* What all pods have in common: {root, component, values}. Service links would set variables such as
     TANDEM_ROUTER_PORT, which are close to those of options. */}}
{{- define "tandem.podSpec" -}}
{{- $values := .values }}
serviceAccountName: {{ include "tandem.serviceAccountName" .root | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $context := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "fsGroupChangePolicy" "OnRootMismatch"
  "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- range $key, $value := .root.Values.podSecurityContext }}{{ $_ := set $context $key $value }}{{ end }}
securityContext:
  {{- toYaml $context | nindent 2 }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.topologySpreadKeys }}
topologySpreadConstraints:
  {{- range $values.topologySpreadKeys }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tandem.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Fills the volume of the models: {root, component}. */}}
{{- define "tandem.initContainers" -}}
{{- if eq .root.Values.models.source "initContainer" }}
{{- with .root.Values.models.initContainer }}
initContainers:
  - name: models
    image: {{ .image | quote }}
    imagePullPolicy: {{ $.root.Values.image.pullPolicy }}
    {{- with .command }}
    command:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .args }}
    args:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    env:
      - {name: HOME, value: /tmp}
      - {name: TANDEM_COMPONENT, value: {{ $.component }}}
      {{- with .env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    securityContext:
      {{- include "tandem.securityContext" . | nindent 6 }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    volumeMounts:
      - {name: models, mountPath: /models}
      - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}
{{- end }}

{{/* Every container has this securityContext. */}}
{{- define "tandem.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What mounts the weights: the source, or `embedded` for pods that need none: {root, withoutModels}. */}}
{{- define "tandem.modelsSource" -}}
{{- ternary "embedded" .root.Values.models.source (default false .withoutModels) }}
{{- end }}

{{/* Volumes of weights, Secrets and scratch: {root, tls, withoutModels}, tls being the names of Secrets that are mounted below /etc/tandem. */}}
{{- define "tandem.volumes" -}}
{{- $models := .root.Values.models }}
{{- $source := include "tandem.modelsSource" . }}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if eq $source "pvc" }}
- name: models
  persistentVolumeClaim: {claimName: {{ $models.pvc.claimName | quote }}, readOnly: true}
{{- else if eq $source "image" }}
- name: models
  image: {reference: {{ $models.image.reference | quote }}, pullPolicy: {{ $models.image.pullPolicy }}}
{{- else if eq $source "hostPath" }}
- name: models
  hostPath: {path: {{ $models.hostPath.path | quote }}, type: Directory}
{{- else if eq $source "initContainer" }}
- name: models
  emptyDir: {sizeLimit: {{ $models.initContainer.sizeLimit }}}
{{- end }}
{{- range $name, $secret := .tls }}
{{- if $secret }}
- name: {{ $name }}
  secret: {secretName: {{ $secret | quote }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- with .root.Values.tokens.secretName }}
- name: tokens
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* Their mounts: {root, tls, withoutModels} likewise. */}}
{{- define "tandem.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if ne (include "tandem.modelsSource" .) "embedded" }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- range $name, $secret := .tls }}
{{- if $secret }}
- {name: {{ $name }}, mountPath: /etc/tandem/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}
{{- if .root.Values.tokens.secretName }}
- {name: tokens, mountPath: /etc/tandem/tokens, readOnly: true}
{{- end }}
{{- end }}

{{/* Folder and name of a model: {root, model: target|draft}. */}}
{{- define "tandem.modelFolder" -}}
{{- if eq .root.Values.models.source "embedded" }}/opt/tandem/models/tales/{{ .model }}
{{- else }}{{ printf "/models/%s" (get .root.Values.models .model).path | trimSuffix "/" }}
{{- end }}
{{- end }}
{{- define "tandem.modelName" -}}
{{- $embedded := ternary (ternary "tales" "tales-draft" (eq .model "target")) "" (eq .root.Values.models.source "embedded") }}
{{- default $embedded (get .root.Values.models .model).name }}
{{- end }}

{{/* Options of a worker, the user's last, as JSON: {root, worker: verifier|drafter}. */}}
{{- define "tandem.workerOptions" -}}
{{- $values := .root.Values }}
{{- $judges := eq .worker "verifier" }}
{{- $model := dict "root" .root "model" (ternary "target" "draft" $judges) }}
{{- $options := dict
  "model" (include "tandem.modelFolder" $model)
  "listen" (printf "%s:%d" $values.listenHost (ternary 50061 50062 $judges))
  "drain-seconds" $values.longestStreamSeconds
  "admin" (printf "%s:%d" $values.listenHost (ternary 9465 9466 $judges)) }}
{{- with include "tandem.modelName" $model }}{{ $_ := set $options "model-name" . }}{{ end }}
{{- if $judges }}{{ $_ := set $options "ring-dir" "/run/tandem/ring" }}{{ end }}
{{- if ne $values.gpu.sharing "none" }}{{ $_ := set $options "backend" "cuda" }}{{ end }}
{{- $tls := include "tandem.workersTls" .root }}
{{- if $tls }}
  {{- $_ := set $options "tls-certificate" "/etc/tandem/workers-tls/tls.crt" }}
  {{- $_ := set $options "tls-key" "/etc/tandem/workers-tls/tls.key" }}
  {{- $_ := set $options "tls-client-ca" "/etc/tandem/workers-tls/ca.crt" }}
  {{- $_ := set $options "client-name" (printf "%s-workers" (include "tandem.fullname" .root)) }}
{{- end }}
{{- with $values.tokens.secretName }}{{ $_ := set $options "token-file" (printf "/etc/tandem/tokens/%s" $values.tokens.key) }}{{ end }}
{{- if not (and $tls $values.tokens.secretName) }}{{ $_ := set $options "insecure" true }}{{ end }}
{{- range $flag, $value := (get $values .worker).options }}{{ $_ := set $options $flag $value }}{{ end }}
{{- toJson $options }}
{{- end }}

{{/* Environment of a worker's container: {root, workers, options}. With one container for both, their options are there too. */}}
{{- define "tandem.workerEnv" -}}
{{- $values := .root.Values }}
{{- $variables := dict "verifier" "TANDEM_VERIFIER" "drafter" "TANDEM_DRAFT" }}
{{- $single := eq $values.gpu.sharing "singleContainer" }}
{{- range $worker := .workers }}
{{- $options := get $.options $worker }}
{{- if $single }}
{{- include "tandem.env" (dict "prefix" (get $variables $worker) "options" $options) }}
{{- else if and (eq $values.gpu.sharing "none") (not (hasKey $options "threads")) }}
# Without this variable, a worker would take all of the node's processors.
- name: {{ get $variables $worker }}_THREADS
  valueFrom: {resourceFieldRef: {resource: limits.cpu}}
{{- end }}
{{- end }}
{{- if and $single (gt (len .workers) 1) }}
- {name: TANDEM_WORKERS_STOP_SECONDS, value: {{ add $values.longestStreamSeconds 10 | toString | quote }}}
{{- end }}
{{- if ne $values.gpu.sharing "none" }}
- {name: CUDA_CACHE_PATH, value: /var/cache/tandem}
{{- end }}
{{- if and $single $values.gpu.mps.enabled (gt (len .workers) 1) }}
- {name: CUDA_MPS_PIPE_DIRECTORY, value: /run/tandem/mps}
- {name: CUDA_MPS_LOG_DIRECTORY, value: /run/tandem/mps}
{{- end }}
{{- range $worker := .workers }}
{{- with (get $values $worker).env }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/* {flag: value} as arguments, and as environment: {prefix, options}. Numbers as JSON, for templates write 8000000 as 8e+06. */}}
{{- define "tandem.args" -}}
{{- range $flag, $value := . }}
- {{ printf "--%s=%s" $flag (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- end }}
{{- end }}
{{- define "tandem.env" -}}
{{- range $flag, $value := .options }}
- name: {{ printf "%s_%s" $.prefix ($flag | upper | replace "-" "_") }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}

{{/* The pause before SIGTERM: {root, seconds}. */}}
{{- define "tandem.preStop" -}}
preStop:
  {{- if semverCompare ">=1.30-0" .root.Capabilities.KubeVersion.Version }}
  sleep: {seconds: {{ .seconds }}}
  {{- else }}
  exec: {command: [sleep, {{ .seconds | toString | quote }}]}
  {{- end }}
{{- end }}

{{/* {path, port, https} */}}
{{- define "tandem.httpGet" -}}
httpGet: {path: {{ .path }}, port: {{ .port }}, scheme: {{ ternary "HTTPS" "HTTP" .https }}}
{{- end }}
