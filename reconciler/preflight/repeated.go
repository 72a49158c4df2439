package preflight

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// list is a list whose items are told apart by keys: server-side apply cannot take one in which two have the same, although
// an update could.
type list struct {
	// keys are fields of an item; "protocol" is TCP where it is missing.
	keys []string
	// lists are those in an item, by field.
	lists map[string]list
}

var (
	named     = list{keys: []string{"name"}}
	container = list{keys: []string{"name"}, lists: map[string]list{
		"env":           named,
		"ports":         {keys: []string{"containerPort", "protocol"}},
		"volumeMounts":  {keys: []string{"mountPath"}},
		"volumeDevices": {keys: []string{"devicePath"}},
	}}
	podLists = map[string]list{
		"containers": container, "initContainers": container, "volumes": named, "imagePullSecrets": named,
		"hostAliases":               {keys: []string{"ip"}},
		"topologySpreadConstraints": {keys: []string{"topologyKey", "whenUnsatisfiable"}},
	}
	servicePorts = map[string]list{"ports": {keys: []string{"port", "protocol"}}}
)

// keyed is where the kinds of Kubernetes have such lists. Those of other kinds are the API server's to know.
var keyed = map[schema.GroupKind]struct {
	path  string
	lists map[string]list
}{
	{Kind: "Service"}:                    {"spec", servicePorts},
	{Kind: "Pod"}:                        {"spec", podLists},
	{Kind: "ReplicationController"}:      {"spec.template.spec", podLists},
	{Group: "apps", Kind: "Deployment"}:  {"spec.template.spec", podLists},
	{Group: "apps", Kind: "ReplicaSet"}:  {"spec.template.spec", podLists},
	{Group: "apps", Kind: "StatefulSet"}: {"spec.template.spec", podLists},
	{Group: "apps", Kind: "DaemonSet"}:   {"spec.template.spec", podLists},
	{Group: "batch", Kind: "Job"}:        {"spec.template.spec", podLists},
	{Group: "batch", Kind: "CronJob"}:    {"spec.jobTemplate.spec.template.spec", podLists},
}

// repeated finds changed objects with two items of the same keys, and says which. They need no dry-run: the API server would
// say the same of the first such list only, and call it a fault of its own.
func repeated(stages []ClearedStage) []Problem {
	var problems []Problem
	for _, stage := range stages {
		for _, object := range stage.objects {
			at, known := keyed[object.key.GroupKind()]
			if !known || !object.Changed() {
				continue
			}
			field, _, err := unstructured.NestedFieldNoCopy(object.Desired().Object, strings.Split(at.path, ".")...)
			parent, ok := field.(map[string]any)
			if err != nil || !ok {
				continue // which the API server says better
			}
			for _, found := range slices.Sorted(slices.Values(repeatedIn(parent, at.path, at.lists))) {
				object.unfit = true
				problems = append(problems, stage.Problem(object, manifestErrorf("%s", found)))
			}
		}
	}
	return problems
}

// repeatedIn says what is repeated in the lists of a parent.
func repeatedIn(parent map[string]any, path string, lists map[string]list) []string {
	var found []string
	for field, list := range lists {
		items, ok := parent[field].([]any)
		if !ok {
			continue
		}
		at := path + "." + field
		seen := map[string]int{}
		for _, item := range items {
			fields, ok := item.(map[string]any)
			if !ok {
				continue
			}
			key := list.keyOf(fields)
			if seen[key]++; seen[key] == 2 {
				found = append(found, fmt.Sprintf("%s has two items with %s", at, key))
			}
			found = append(found, repeatedIn(fields, fmt.Sprintf("%s[%s]", at, key), list.lists)...)
		}
	}
	return found
}

// keyOf tells an item: "name A", "containerPort 80, protocol TCP".
func (l list) keyOf(item map[string]any) string {
	parts := make([]string, 0, len(l.keys))
	for _, key := range l.keys {
		value, given := item[key]
		if !given && key == "protocol" {
			value = "TCP"
		}
		parts = append(parts, fmt.Sprintf("%s %v", key, value))
	}
	return strings.Join(parts, ", ")
}
