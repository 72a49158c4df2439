package e2e

import (
	"fmt"
	"strings"

	"github.com/stageset/stageset/e2e/cluster"
)

// files joins manifests to the content of a file.
func documents(manifests ...string) string { return strings.Join(manifests, "---\n") }

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, value)
}

// deployment has one Pod, of that version.
func deployment(name, version string) string { return deploymentWith(name, version, "") }

// heldDeployment is a deployment whose Pods do not become Ready before ReleasePods.
func heldDeployment(name, version string) string {
	return deploymentWith(name, version, ", "+cluster.NotReady+`: "true"`)
}

func deploymentWith(name, version, labels string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s%[3]s}}
    spec: {containers: [{name: app, image: "registry.invalid/app:%[2]s"}]}
`, name, version, labels)
}

// oneStage is YAML of the spec of a StageSet that applies all of a source as deployer.
func oneStage(source string) string {
	return `
serviceAccountName: ` + deployer + `
stages:
- {name: app, sourceRef: {kind: GitRepository, name: ` + source + `}}
`
}

// twoStages is YAML of the spec of a StageSet that applies the folders one and two of a source as deployer.
func twoStages(source string) string {
	return `
serviceAccountName: ` + deployer + `
stages:
- {name: one, path: one, sourceRef: {kind: GitRepository, name: ` + source + `}}
- {name: two, path: two, sourceRef: {kind: GitRepository, name: ` + source + `}}
`
}
