{{- define "stile.name" -}}
{{- if eq .Release.Name .Chart.Name }}stile{{ else }}{{ printf "%s-stile" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "stile.selector" -}}
app.kubernetes.io/name: stile
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end }}

{{- define "stile.labels" -}}
app.kubernetes.io/name: stile
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "stile.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The level, at admission and in what kubectl says. */}}
{{- define "stile.restricted" -}}
pod-security.kubernetes.io/enforce: restricted
pod-security.kubernetes.io/enforce-version: latest
pod-security.kubernetes.io/warn: restricted
pod-security.kubernetes.io/audit: restricted
{{- end }}

{{- define "stile.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# What lends the files of Secrets, which are root's, to stile.
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "stile.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* By the admin socket and not by the file: one that is broken must not end a stile that works on with the old one. */}}
{{- define "stile.statusCommand" -}}
["/usr/bin/stile", "status", "--socket", "/run/stile/admin.sock"]
{{- end }}

{{- define "stile.checks" -}}
{{- if and (ne .Values.tokens "none") (not .Values.state) (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1)) }}
{{- fail "tokens live in one replica: set replicas to 1 and autoscaling.enabled to false, or state, or tokens to none" }}
{{- end }}
{{- if and (ne .Values.tokens "required") (not (hasKey .Values.policies .Values.policy)) }}
{{- fail (printf "policy: there is no %s under policies" .Values.policy) }}
{{- end }}
{{- if and .Values.sidecar.enabled (ne .Values.tokens "required") }}
{{- fail "sidecar: without `tokens: required` the gateway serves whatever else is in the pod as well" }}
{{- end }}
{{- end }}

{{/* What `stile ca env` prints, but for Java's, whose store is no PEM. (dict "proxy" URL "secret" NAME) */}}
{{- define "stile.clientEnv" -}}
{{- $bundle := "/run/stile-trust/ca-bundle.pem" }}
{{- $secret := .secret }}
{{- $proxy := .proxy }}
{{- range list "HTTP_PROXY" "http_proxy" "HTTPS_PROXY" "https_proxy" "ALL_PROXY" "all_proxy" "YARN_HTTP_PROXY" "YARN_HTTPS_PROXY" "WS_PROXY" "ws_proxy" "WSS_PROXY" "wss_proxy" }}
{{- if $secret }}
- {name: {{ . }}, valueFrom: {secretKeyRef: {name: {{ $secret }}, key: proxy}}}
{{- else }}
- {name: {{ . }}, value: {{ $proxy | quote }}}
{{- end }}
{{- end }}
{{- range list "NO_PROXY" "no_proxy" }}
- {name: {{ . }}, value: "localhost,127.0.0.1,::1"}
{{- end }}
- {name: NODE_USE_ENV_PROXY, value: "1"}
{{- range list "SSL_CERT_FILE" "NODE_EXTRA_CA_CERTS" "REQUESTS_CA_BUNDLE" "CURL_CA_BUNDLE" "GIT_SSL_CAINFO" "PIP_CERT" "CARGO_HTTP_CAINFO" "npm_config_cafile" "YARN_HTTPS_CA_FILE_PATH" "DENO_CERT" "AWS_CA_BUNDLE" "HTTPLIB2_CA_CERTS" "NIX_SSL_CERT_FILE" "BUNDLE_SSL_CA_CERT" "PERL_LWP_SSL_CA_FILE" "HEX_CACERTS_PATH" "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE" "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" }}
- {name: {{ . }}, value: {{ $bundle }}}
{{- end }}
- {name: HOME, value: /tmp}
{{- end }}

{{/* Of a pod of a sandbox: no account, no names of services, no resolver that answers. */}}
{{- define "stile.sandboxPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
restartPolicy: Never
# Names are looked up by stile. Nobody listens there, so that who asks is told at once.
dnsPolicy: None
dnsConfig: {nameservers: [127.0.0.1]}
{{- if .Values.gvisor.enabled }}
runtimeClassName: {{ .Values.gvisor.runtimeClassName }}
{{- end }}
{{- end }}
