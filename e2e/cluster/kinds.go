package cluster

import (
	"fmt"
	"strings"
)

// CustomKind is YAML of the CustomResourceDefinition of a kind in namespaces, whose objects may have any content, and a status
// of their own. It is served in all of the versions, and stored in the first.
func CustomKind(group, kind string, versions ...string) string {
	singular := strings.ToLower(kind)
	text := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.%[2]s}
spec:
  group: %[2]s
  scope: Namespaced
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]ss, singular: %[1]s}
  versions:
`, singular, group, kind)
	for i, version := range versions {
		text += fmt.Sprintf(`  - name: %s
    served: true
    storage: %t
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, version, i == 0)
	}
	return text
}
