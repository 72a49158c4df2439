// Package inventory holds what a StageSet has applied, as values: keys, records, unions and differences, and how records
// are split into StageInventory objects. It is pure: it never talks to a cluster (package store does) and never decides
// what is deleted (package prune does).
package inventory

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
)

// Key identifies an object whatever the API version it is written in.
type Key struct {
	Group, Kind, Namespace, Name string
}

// Place is an object on a cluster.
type Place struct {
	// Cluster is as v1.InventoryTarget has it.
	Cluster string
	Key
}

// crdGroup is the group of CustomResourceDefinitions.
const crdGroup = "apiextensions.k8s.io"

// Spared is true for what a StageSet in a namespace never deletes, whoever applied it: the namespace, and the CRDs of the
// product, with which all StageSets and inventories would go (T-71). On another cluster neither is.
func (p Place) Spared(namespace string) bool {
	switch p.GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		return p.Cluster == v1.ClusterLocal && p.Name == namespace
	case schema.GroupKind{Group: crdGroup, Kind: "CustomResourceDefinition"}:
		return p.Cluster == v1.ClusterLocal && strings.HasSuffix(p.Name, "."+v1.GroupVersion.Group)
	}
	return false
}

// KeyOf is the key of an object.
func KeyOf(obj *unstructured.Unstructured) Key {
	gvk := obj.GroupVersionKind()
	return Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// EntryKey is the key of an inventory entry.
func EntryKey(entry v1.InventoryEntry) Key {
	return Key{Group: entry.Group, Kind: entry.Kind, Namespace: entry.Namespace, Name: entry.Name}
}

// EntryGVK is the group, version and kind that an entry was applied as.
func EntryGVK(entry v1.InventoryEntry) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: entry.Group, Version: entry.Version, Kind: entry.Kind}
}

// GroupKind is the key's group and kind.
func (k Key) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: k.Group, Kind: k.Kind}
}

// String is the key as messages have it: "Deployment.apps payments/web", "Namespace payments".
func (k Key) String() string {
	var b strings.Builder
	b.WriteString(k.Kind)
	if k.Group != "" {
		b.WriteString("." + k.Group)
	}
	b.WriteByte(' ')
	if k.Namespace != "" {
		b.WriteString(k.Namespace + "/")
	}
	b.WriteString(k.Name)
	return b.String()
}

// Compare orders keys by namespace, group, kind and name, so that lists in messages and files are stable.
func Compare(a, b Key) int {
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Name, b.Name),
	)
}
