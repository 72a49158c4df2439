package preflight

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// T-53: server-side apply cannot tell items of the same keys apart, and says so as if it were its own fault.
func TestRepeatedKeys(t *testing.T) {
	const (
		web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  template:
    spec:
      volumes: [{name: data}, {name: data}]
      initContainers: [{name: init, env: [{name: A, value: "1"}]}]
      containers:
      - name: app
        env: [{name: A, value: "1"}, {name: B, value: "1"}, {name: A, value: "2"}, {name: A, value: "3"}]
        ports: [{containerPort: 80}, {containerPort: 80, name: again, protocol: TCP}, {containerPort: 80, protocol: UDP}]
        volumeMounts: [{name: data, mountPath: /a}, {name: data, mountPath: /b}]
      - {name: other, env: [{name: A, value: "1"}]}
`
		cron = `apiVersion: batch/v1
kind: CronJob
metadata: {name: cron, namespace: team-a}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: b}, {name: a, image: c}]}}}}}
`
		dns = `apiVersion: v1
kind: Service
metadata: {name: dns, namespace: team-a}
spec: {ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}, {port: 53, name: again}]}
`
		odd = "apiVersion: v1\nkind: Service\nmetadata: {name: odd, namespace: team-a}\nspec: {ports: [1, 1, {}]}\n"
	)
	for name, tc := range map[string]struct {
		settled   []string
		manifests []string
		want      []string
	}{
		"lists of containers and volumes": {manifests: []string{web}, want: []string{
			"stage a: Deployment.apps team-a/web: spec.template.spec.containers[name app].env has two items with name A",
			"stage a: Deployment.apps team-a/web: spec.template.spec.containers[name app].ports has two items with " +
				"containerPort 80, protocol TCP",
			"stage a: Deployment.apps team-a/web: spec.template.spec.volumes has two items with name data",
		}},
		"a template in a template": {manifests: []string{cron}, want: []string{
			"stage a: CronJob.batch team-a/cron: spec.jobTemplate.spec.template.spec.containers has two items with name a",
		}},
		"ports of a Service": {manifests: []string{dns}, want: []string{
			"stage a: Service team-a/dns: spec.ports has two items with port 53, protocol TCP",
		}},
		"no such lists":             {manifests: []string{odd, plain}},
		"what is not to be written": {settled: []string{dns}, manifests: []string{dns}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, problem := range repeated(release(t, tc.settled, tc.manifests)) {
				got = append(got, problem.text(""))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
