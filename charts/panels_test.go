package charts_test

// ask is a query of a panel, and what its series are called.
type ask struct{ expr, legend string }

// panel is a picture of a dashboard.
type panel struct {
	// kind is timeseries, stat (the last value) or table (the series that there are now).
	kind, title, description string
	// unit is Grafana's name of it; empty is a number.
	unit    string
	queries []ask
}

// row is a row of panels, under a title.
type row struct {
	title  string
	panels []panel
}

// validations are those of StageSets, by how long they took.
const validations = `stageset_admission_seconds_bucket{job="$job",namespace=~"$namespace",webhook="/stagesets/validate"}`

// dashboards are those of the chart, by program.
var dashboards = map[string][]row{
	"stageset-reconciler": {
		{"StageSets", []panel{
			{"stat", "Ready", "StageSets whose release is applied and healthy.", "", []ask{
				{`sum(max by (namespace, name) (stageset_ready{job="$job",namespace=~"$namespace"})) or vector(0)`, ""}}},
			{"stat", "Not Ready", "StageSets that are not, suspended ones included.", "", []ask{
				{`count(max by (namespace, name) (stageset_ready{job="$job",namespace=~"$namespace"}) == 0) or vector(0)`, ""}}},
			{"stat", "Held", "StageSets that are Ready while a newer release waits.", "", []ask{
				{`count(max by (namespace, name)
(stageset_ready{job="$job",namespace=~"$namespace",reason!="Succeeded"}) == 1) or vector(0)`, ""}}},
			{"stat", "Elected", "Replicas that are elected: one.", "", []ask{
				{`sum(leader_election_master_status{job="$job"})`, ""}}},
			{"timeseries", "Not Ready, by reason", "docs/reasons.md says what to do about each.", "", []ask{
				{`count by (reason) (stageset_ready{job="$job",namespace=~"$namespace"} == 0)`, "{{reason}}"}}},
			{"table", "Not Ready now", "kubectl describe stageset says more.", "", []ask{
				{`max by (namespace, name, reason) (stageset_ready{job="$job",namespace=~"$namespace"} == 0)`, ""}}},
		}},
		{"Passes", []panel{
			{"timeseries", "Passes by reason", "How passes end.", "ops", []ask{
				{`sum by (reason) (rate(stageset_reconcile_total{job="$job"}[$__rate_interval]))`, "{{reason}}"}}},
			{"timeseries", "Seconds of each step, median", "", "s", []ask{
				{quantile("0.5", "le, step", `stageset_step_seconds_bucket{job="$job"}`), "{{step}}"}}},
			{"timeseries", "Seconds of each step, p99", "", "s", []ask{
				{quantile("0.99", "le, step", `stageset_step_seconds_bucket{job="$job"}`), "{{step}}"}}},
		}},
		{"Queue", []panel{
			{"timeseries", "Due", "StageSets that wait for a worker, and workers.", "", []ask{
				{`max(stageset_queue_depth{job="$job"})`, "waiting"},
				{`max(controller_runtime_active_workers{job="$job",controller="stageset"})`, "workers busy"},
				{`max(controller_runtime_max_concurrent_reconciles{job="$job",controller="stageset"})`, "workers"}}},
			{"timeseries", "Wait", "How long they have waited once they have a worker, and who has none yet.", "s", []ask{
				{quantile("0.5", "le", `stageset_queue_seconds_bucket{job="$job"}`), "median"},
				{quantile("0.99", "le", `stageset_queue_seconds_bucket{job="$job"}`), "p99"},
				{`max(stageset_queue_oldest_seconds{job="$job"})`, "oldest that waits"}}},
		}},
		{"What others change, and what stays behind", []panel{
			{"timeseries", "Objects set right in an hour", "Somebody else had changed or deleted them.", "", []ask{
				{`sum(increase(stageset_drift_corrected_total{job="$job"}[1h]))`, "objects"}}},
			{"table", "Drift that comes back", "Somebody sets again and again what these apply.", "", []ask{
				{`max by (namespace, name) (stageset_drift_looping{job="$job",namespace=~"$namespace"})`, ""}}},
			{"timeseries", "Objects left behind in an hour", "They should have been deleted; events name them.", "", []ask{
				{`sum(increase(stageset_orphaned_objects_total{job="$job"}[1h]))`, "objects"}}},
		}},
		requestsRow(panel{"timeseries", "Requests for tokens", "Of tenants' accounts.", "ops", []ask{
			{`sum by (result) (rate(stageset_token_requests_total{job="$job"}[$__rate_interval]))`, "{{result}}"}}}),
		{"Artifacts", []panel{
			{"timeseries", "Artifacts", "From the cache, and downloads by how they ended.", "ops", []ask{
				{`sum by (result) (rate(stageset_artifacts_total{job="$job"}[$__rate_interval]))`, "{{result}}"}}},
			{"timeseries", "Seconds of downloads", "With verifying and unpacking.", "s", []ask{
				{quantile("0.5", "le", `stageset_artifact_download_seconds_bucket{job="$job"}`), "median"},
				{quantile("0.99", "le", `stageset_artifact_download_seconds_bucket{job="$job"}`), "p99"}}},
			{"timeseries", "Cache", "On the volume of artifacts.", "bytes", []ask{
				{`max(stageset_artifact_cache_bytes{job="$job"})`, "unpacked"}}},
		}},
		policiesRow("reconcile"),
		processesRow,
	},
	"stageset-admission": {
		{"Requests", []panel{
			{"stat", "Replicas", "That answer.", "", []ask{{`sum(up{job="$job",namespace=~"$namespace"})`, ""}}},
			{"stat", "Elected", "Replicas that are elected, for the certificate and the audit: one.", "", []ask{
				{`sum(leader_election_master_status{job="$job",namespace=~"$namespace"})`, ""}}},
			{"timeseries", "Verdicts", "Without dry runs.", "reqps", []ask{
				{`sum by (webhook, verdict) (rate(
stageset_admission_seconds_count{job="$job",namespace=~"$namespace"}[$__rate_interval]))`,
					"{{webhook}} {{verdict}}"}}},
			{"timeseries", "Seconds of validations", "After five the API server gives up.", "s", []ask{
				{quantile("0.5", "le", validations), "median"},
				{quantile("0.99", "le", validations), "p99"}}},
			{"timeseries", "Without a verdict", "Too many came at once (shed), or something failed (error).", "reqps", []ask{
				{`sum by (webhook, verdict) (rate(
stageset_admission_seconds_count{job="$job",namespace=~"$namespace",verdict=~"error|shed"}[$__rate_interval]))`,
					"{{webhook}} {{verdict}}"},
				{`sum(rate(controller_runtime_webhook_panics_total{job="$job",namespace=~"$namespace"}[$__rate_interval]))`, "panic"}}},
			{"timeseries", "Seconds of every webhook, p99", "Also defaulting, and StageSetPolicies.", "s", []ask{
				{quantile("0.99", "le, webhook", `stageset_admission_seconds_bucket{job="$job",namespace=~"$namespace"}`),
					"{{webhook}}"}}},
		}},
		policiesRow("admission"),
		{"Audit", []panel{
			{"timeseries", "Violations", "Among the StageSets that are stored, at the last audit.", "", []ask{
				{`max by (policy) (stageset_audit_violations{job="$job",namespace=~"$namespace"} > 0)`, "{{policy}}"}}},
			{"timeseries", "Policies", "Stored ones that can be used, and not, and built-in ones.", "", []ask{
				{`max by (state) (stageset_policies{job="$job",namespace=~"$namespace"})`, "{{state}}"}}},
		}},
		{"Certificate", []panel{
			{"timeseries", "Until expiry", "Renewed 90 days before.", "s", []ask{
				{`min by (kind) (stageset_certificate_expiry_seconds{job="$job",namespace=~"$namespace"})`, "{{kind}}"}}},
			{"timeseries", "Replicas whose certificate is trusted", "All of them, but for a moment.", "", []ask{
				{`sum(stageset_certificate_trusted{job="$job",namespace=~"$namespace"})`, "trusted"}}},
			{"timeseries", "Problems in an hour", "That keep the certificate from being renewed.", "", []ask{
				{`sum by (kind) (increase(stageset_certificate_problems_total{job="$job",namespace=~"$namespace"}[1h]))`, "{{kind}}"}}},
		}},
		requestsRow(),
		processesRow,
	},
}

// requestsRow is about requests to API servers, and what is shown beside them.
func requestsRow(beside ...panel) row {
	return row{"Requests to API servers", append([]panel{
		{"timeseries", "Requests", "To this cluster's, and to all others together.", "reqps", []ask{
			{`sum by (host, code) (rate(rest_client_requests_total{job="$job"}[$__rate_interval]))`, "{{host}} {{code}}"}}},
		{"timeseries", "Seconds of requests", "Without watches.", "s", []ask{
			{quantile("0.5", "le, host", `rest_client_request_duration_seconds_bucket{job="$job"}`), "{{host}} median"},
			{quantile("0.99", "le, host", `rest_client_request_duration_seconds_bucket{job="$job"}`), "{{host}} p99"}}},
		{"timeseries", "Throttled", "Refused with 429, by the priority and fairness of an API server.", "reqps", []ask{
			{`sum by (host) (rate(rest_client_requests_total{job="$job",code="429"}[$__rate_interval]))`, "{{host}}"}}},
	}, beside...)}
}

// policiesRow is about policies at a point of enforcement.
func policiesRow(point string) row {
	return row{"Policies", []panel{
		{"timeseries", "Violations", "By what they lead to.", "ops", []ask{
			{`sum by (policy, action)
(rate(stageset_policy_decisions_total{job="$job",enforcement_point="` + point + `"}[$__rate_interval]))`,
				"{{policy}} {{action}}"}}},
		{"timeseries", "Not evaluated in an hour", "Their failurePolicy decides.", "", []ask{
			{`sum by (policy, kind) (increase(stageset_policy_errors_total{job="$job"}[1h])) > 0`, "{{policy}} {{kind}}"}}},
		{"timeseries", "Seconds of an evaluation, p99", "", "s", []ask{
			{quantile("0.99", "le, policy", `stageset_policy_evaluation_seconds_bucket{job="$job"}`), "{{policy}}"}}},
	}}
}

// processesRow is about what the program uses.
var processesRow = row{"Processes", []panel{
	{"timeseries", "Memory", "Resident.", "bytes", []ask{{`process_resident_memory_bytes{job="$job"}`, "{{instance}}"}}},
	{"timeseries", "Processors", "", "short", []ask{
		{`rate(process_cpu_seconds_total{job="$job"}[$__rate_interval])`, "{{instance}}"}}},
	{"timeseries", "Goroutines", "", "", []ask{{`go_goroutines{job="$job"}`, "{{instance}}"}}},
}}

// quantile is one of a histogram, of all replicas together.
func quantile(of, by, bucket string) string {
	return "histogram_quantile(" + of + ", sum by (" + by + ") (rate(" + bucket + "[$__rate_interval])))"
}
