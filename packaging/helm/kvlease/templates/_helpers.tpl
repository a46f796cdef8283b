{{- /* Lines KEY = VALUE of a map, in order of key: those of a section of kvleased.conf. */ -}}
{{- define "kvlease.options" -}}
{{- range $key, $value := . }}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) }}
{{- fail (printf "%s: an option of kvleased.conf is a text, a number or a truth value" $key) }}
{{- end }}
{{- if kindIs "float64" $value }}
{{ $key }} = {{ if eq (floor $value) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- else if kindIs "bool" $value }}
{{ $key }} = {{ ternary "on" "off" $value }}
{{- else }}
{{ $key }} = {{ $value }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What all objects have. */ -}}
{{- define "kvlease.labels" -}}
app.kubernetes.io/name: kvleased
{{- end }}
