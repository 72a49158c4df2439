package preflight

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/tenant"
)

// gift is where a release gives rights that are not there yet.
type gift struct {
	place
	// by is the object that gives them.
	by inventory.Key
	// to says whether it gives them to an account, for an object.
	to func(account tenant.Account, object inventory.Key) bool
}

// aggregated begins the labels of cluster roles that are added to others.
const aggregated = rbacGroup + "/aggregate-to-"

// addGift notes what gives rights to somebody: a binding, if it or its role is still to be written, and a cluster role that
// is added to others, which anybody may have.
func (p *pending) addGift(object *Object, at place) {
	switch object.key.GroupKind() {
	case schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"},
		schema.GroupKind{Group: rbacGroup, Kind: "ClusterRoleBinding"}:
		role, changes := p.objects[boundRole(object)]
		switch {
		case changes && at.before(role):
			at = role
		case !changes && object.settled():
			return
		}
		to := pendingBinding{key: object.key, subjects: subjects(object.Desired())}
		p.gifts = append(p.gifts, gift{place: at, by: object.key, to: to.concerns})
	case schema.GroupKind{Group: rbacGroup, Kind: "ClusterRole"}:
		for label := range object.Desired().GetLabels() {
			if strings.HasPrefix(label, aggregated) && !object.settled() {
				p.gifts = append(p.gifts, gift{place: at, by: object.key, to: anybody})
				return
			}
		}
	}
}

// anybody may have been given what is added to a role, anywhere.
func anybody(tenant.Account, inventory.Key) bool { return true }

// gift is the last that the release gives an account for an object before its place; nil if there is none.
func (p *pending) gift(object inventory.Key, before place, account tenant.Account) *gift {
	var last *gift
	for i := range p.gifts {
		next := &p.gifts[i]
		if next.before(before) && next.to(account, object) && (last == nil || last.before(next.place)) {
			last = next
		}
	}
	return last
}
