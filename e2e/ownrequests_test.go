package e2e

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
)

// grants are what the generated roles of the reconciler let its own account do: "verb group/resource", and with " at home"
// what is granted in its own namespace alone.
type grants map[string]bool

// atHome ends what is granted in the namespace of the installation alone.
const atHome = " at home"

// ownGrants reads what is granted.
func ownGrants(t testing.TB) grants {
	t.Helper()
	granted := grants{}
	for document := range strings.SplitSeq(chartFile(t, "reconciler-rbac.yaml"), "\n---\n") {
		var role rbacv1.Role // a ClusterRole has the same rules
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		where := ""
		if role.Namespace != "" {
			where = atHome
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted[verb+" "+rule.APIGroups[0]+"/"+resource+where] = true
				}
			}
		}
	}
	return granted
}

// of is what grants a request of an account in the namespace home; empty if nothing does.
func (g grants) of(event cluster.AuditEvent, home string) string {
	resource := strings.TrimSuffix(event.Group+"/"+event.Resource+"/"+event.Subresource, "/")
	if key := event.Verb + " " + resource; g[key] {
		return key
	}
	if key := event.Verb + " " + resource + atHome; g[key] && event.Namespace == home {
		return key
	}
	return ""
}

// forAnybody is true for what every account may do: find out what is served, and what it may do itself.
func forAnybody(event cluster.AuditEvent) bool {
	return event.Resource == "" && event.Verb == "get" || event.Resource == "selfsubjectaccessreviews" && event.Verb == "create"
}

// homeOf is the namespace of the installation whose reconciler made a request; empty if none did.
func homeOf(event cluster.AuditEvent) string {
	account, ours := strings.CutSuffix(event.User, ":"+programReconciler)
	if !ours {
		return ""
	}
	return strings.TrimPrefix(account, "system:serviceaccount:")
}

func byReconcilers(event cluster.AuditEvent) bool { return homeOf(event) != "" }

// parameters is the ConfigMap that a policy of a test has its parameters in, for which the reconcilers are given the right to
// read it, as an admin does who writes such a policy.
const parameters = "freeze"

func readsParameters(event cluster.AuditEvent) bool {
	return event.Resource == "configmaps" && !event.Write() &&
		(event.Name == parameters || strings.Contains(event.URI, "fieldSelector=metadata.name%3D"+parameters+"&"))
}

// checkOwnRequests checks that no reconciler's own account did anything else in the whole run so far than what is granted to
// it, for whatever tenant and whatever else it was given for a test, and was nobody else (T-17). Those that may apply as
// themselves have tests of what they then do.
func checkOwnRequests(t testing.TB, s *suite) {
	t.Helper()
	granted := ownGrants(t)
	for _, event := range s.began.Since(t, byReconcilers) {
		home := homeOf(event)
		allowed := s.itself[home] || forAnybody(event) || readsParameters(event) || granted.of(event, home) != ""
		if event.Impersonated != "" || !allowed {
			t.Errorf("the reconciler's own account did, as %q: %s", event.Impersonated, event)
		}
	}
}

// unused are grants that no test has a use for, and why they are there.
var unused = map[string]string{
	"patch /events at home":      "what leader election says is said again at the next change of the leader alone",
	"patch events.k8s.io/events": "an event is counted where it is repeated about a StageSet that has not changed since",
}

// checkGrantsAreUsed checks, after all tests, that everything that is granted was used by the reconciler of one installation
// or another. To list is for API servers that do not list within a watch, as this one does.
func checkGrantsAreUsed(t testing.TB, s *suite) {
	t.Helper()
	if flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return // only all tests use everything
	}
	granted, used := ownGrants(t), grants{}
	for _, event := range s.began.Since(t, byReconcilers) {
		used[granted.of(event, homeOf(event))] = true
	}
	for _, key := range slices.Sorted(maps.Keys(granted)) {
		watched := strings.HasPrefix(key, "list ") && used["watch "+strings.TrimPrefix(key, "list ")]
		if !used[key] && !watched && unused[key] == "" {
			t.Errorf("the reconciler is granted, and does not need: %s", key)
		}
	}
}
