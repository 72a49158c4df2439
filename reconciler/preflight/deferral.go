package preflight

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Groups of kinds that others wait for.
const (
	rbacGroup       = "rbac.authorization.k8s.io"
	crdGroup        = "apiextensions.k8s.io"
	schedulingGroup = "scheduling.k8s.io"
)

// place is where in a release an object is rendered.
type place struct {
	stage, wave int
}

func (p place) before(other place) bool {
	return p.stage < other.stage || p.stage == other.stage && p.wave < other.wave
}

// pending is what a release renders and has not settled: an object that others may have to wait for.
type pending struct {
	objects  map[inventory.Key]place
	kinds    map[schema.GroupKind]place
	bindings []pendingBinding
	gifts    []gift
}

type pendingBinding struct {
	place
	key      inventory.Key
	subjects []string
}

// concerns is true for a binding that has an account, or a group of it, as a subject, and gives rights to the object: one in a
// namespace gives them there, and to the Namespace itself, and nowhere else.
func (b pendingBinding) concerns(account tenant.Account, object inventory.Key) bool {
	namespace := object.Namespace
	if object.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		namespace = object.Name
	}
	if b.key.Namespace != "" && b.key.Namespace != namespace {
		return false
	}
	return slices.ContainsFunc(append(account.Groups(), account.Username()), func(identity string) bool {
		return slices.Contains(b.subjects, identity)
	})
}

// deferObjects marks the objects whose dry-run says nothing yet because something that the release itself renders earlier,
// in an earlier stage or an earlier wave of its own, is not there: its namespace, its CRD, the role it binds, what a Pod
// names, or a binding that gives the stage's account its rights. It is decided from the rendered objects alone: a
// missing role and a missing namespace both answer 404, so the API server's answer tells nothing.
func deferObjects(stages []ClearedStage) {
	waiting := collect(stages)
	for number, stage := range stages {
		for _, object := range stage.objects {
			at := place{stage: number, wave: object.wave}
			object.gift = waiting.gift(object.key, at, stage.account)
			if object.Changed() {
				object.waitsFor = waiting.blocker(object, at, stage.account)
			}
		}
		for i := range stage.checks { // which are looked at when all of the stage is applied
			check := &stage.checks[i]
			check.given = waiting.gift(check.Key, place{stage: number + 1}, stage.account) != nil
		}
	}
}

func collect(stages []ClearedStage) pending {
	waiting := pending{objects: map[inventory.Key]place{}, kinds: map[schema.GroupKind]place{}}
	for number, stage := range stages {
		for _, object := range stage.objects {
			if !object.settled() {
				waiting.add(object, place{stage: number, wave: object.wave})
			}
		}
	}
	for number, stage := range stages {
		for _, object := range stage.objects {
			waiting.addGift(object, place{stage: number, wave: object.wave})
		}
	}
	return waiting
}

// settled is true when nothing has to wait for the object: it is live and this run does not change it. A namespace has
// no content that matters to others: it is settled as soon as it is there.
func (o *Object) settled() bool {
	if o.key.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		return o.live != nil
	}
	return !o.Changed()
}

func (p *pending) add(object *Object, at place) {
	p.objects[object.key] = at
	switch object.key.GroupKind() {
	case schema.GroupKind{Group: crdGroup, Kind: "CustomResourceDefinition"}:
		if kind, ok := definedKind(object.Desired()); ok {
			p.kinds[kind] = at
		}
	case schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"},
		schema.GroupKind{Group: rbacGroup, Kind: "ClusterRoleBinding"}:
		p.bindings = append(p.bindings, pendingBinding{place: at, key: object.key, subjects: subjects(object.Desired())})
	}
}

// blocker names what the object waits for; empty if nothing.
func (p *pending) blocker(object *Object, at place, account tenant.Account) string {
	for _, key := range needs(object) {
		if where, rendered := p.objects[key]; rendered && where.before(at) {
			return key.String()
		}
	}
	kind := object.key.GroupKind()
	if where, rendered := p.kinds[kind]; rendered && where.before(at) {
		return "the CustomResourceDefinition of " + kind.String()
	}
	for _, binding := range p.bindings {
		if binding.before(at) && binding.concerns(account, object.key) {
			return binding.key.String()
		}
	}
	return ""
}

// needs are the objects that must exist before the API server can answer for this one.
func needs(object *Object) []inventory.Key {
	var keys []inventory.Key
	namespace := object.key.Namespace
	if namespace != "" {
		keys = append(keys, inventory.Key{Kind: "Namespace", Name: namespace})
	}
	obj := object.Desired().Object
	switch object.key.GroupKind() {
	case schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"},
		schema.GroupKind{Group: rbacGroup, Kind: "ClusterRoleBinding"}:
		keys = append(keys, boundRole(object))
	case schema.GroupKind{Kind: "Pod"}:
		keys = append(keys,
			inventory.Key{Kind: "ServiceAccount", Namespace: namespace, Name: text(obj, "spec", "serviceAccountName")},
			inventory.Key{Group: schedulingGroup, Kind: "PriorityClass", Name: text(obj, "spec", "priorityClassName")},
			inventory.Key{Group: "node.k8s.io", Kind: "RuntimeClass", Name: text(obj, "spec", "runtimeClassName")},
		)
	}
	return keys
}

// boundRole is the role that a binding gives.
func boundRole(binding *Object) inventory.Key {
	obj := binding.Desired().Object
	role := inventory.Key{Group: rbacGroup, Kind: text(obj, "roleRef", "kind"), Name: text(obj, "roleRef", "name")}
	if role.Kind == "Role" {
		role.Namespace = binding.key.Namespace
	}
	return role
}

// text is a string field; empty when it is missing or no string, which the API server will say better.
func text(obj map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(obj, path...)
	return value
}

func definedKind(crd *unstructured.Unstructured) (schema.GroupKind, bool) {
	kind := schema.GroupKind{Group: text(crd.Object, "spec", "group"), Kind: text(crd.Object, "spec", "names", "kind")}
	return kind, kind.Group != "" && kind.Kind != ""
}

// subjects are the user and group names that a binding gives its role to.
func subjects(binding *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	var names []string
	for _, item := range list {
		subject, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name := text(subject, "name")
		if text(subject, "kind") == "ServiceAccount" {
			name = tenant.Account{Namespace: text(subject, "namespace"), Name: name}.Username()
		}
		names = append(names, name)
	}
	return names
}
