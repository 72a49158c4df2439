package permissions

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// on are permissions for one object.
func on(group, resource, namespace, name string, verbs ...string) Permissions {
	return Of(Permission{Group: group, Resource: resource, Namespace: namespace, Name: name}, verbs...)
}

func TestRulesAllowAsRBACDoes(t *testing.T) {
	web := Permission{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}
	rule := func(change func(*authorizationv1.ResourceRule)) authorizationv1.ResourceRule {
		rule := authorizationv1.ResourceRule{
			Verbs: []string{"get", "patch"}, APIGroups: []string{"", "apps"}, Resources: []string{"pods", "deployments"},
		}
		change(&rule)
		return rule
	}
	cases := map[string]struct {
		change func(*authorizationv1.ResourceRule)
		want   bool
	}{
		"as it says":         {change: func(*authorizationv1.ResourceRule) {}, want: true},
		"all verbs":          {change: func(r *authorizationv1.ResourceRule) { r.Verbs = []string{"*"} }, want: true},
		"other verbs":        {change: func(r *authorizationv1.ResourceRule) { r.Verbs = []string{"update"} }},
		"all groups":         {change: func(r *authorizationv1.ResourceRule) { r.APIGroups = []string{"*"} }, want: true},
		"another group":      {change: func(r *authorizationv1.ResourceRule) { r.APIGroups = []string{"batch"} }},
		"all resources":      {change: func(r *authorizationv1.ResourceRule) { r.Resources = []string{"*"} }, want: true},
		"only a subresource": {change: func(r *authorizationv1.ResourceRule) { r.Resources = []string{"deployments/scale"} }},
		"the object by name": {
			change: func(r *authorizationv1.ResourceRule) { r.ResourceNames = []string{"api", "web"} }, want: true,
		},
		"another object's name": {change: func(r *authorizationv1.ResourceRule) { r.ResourceNames = []string{"api"} }},
		"a star is no name":     {change: func(r *authorizationv1.ResourceRule) { r.ResourceNames = []string{"*"} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rules := Rules{Resources: []authorizationv1.ResourceRule{rule(tc.change)}}
			if got := rules.Allows(web); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestLines(t *testing.T) {
	cases := map[string]struct {
		list Permissions
		want []string
	}{
		"nothing": {want: []string{}},
		"objects with the same verbs": {
			list: slices.Concat(
				on("apps", "deployments", "shop", "web", "patch", "create"), on("apps", "deployments", "shop", "api", "create", "patch"),
			),
			want: []string{"create, patch deployments.apps in shop (api, web)"},
		},
		"others with other verbs": {
			list: slices.Concat(on("", "configmaps", "shop", "b", "delete"), on("", "configmaps", "shop", "a", "delete", "get")),
			want: []string{"get, delete configmaps in shop (a)", "delete configmaps in shop (b)"},
		},
		"more than can be named": {
			list: slices.Concat(on("", "secrets", "shop", "e", "get"), on("", "secrets", "shop", "d", "get"),
				on("", "secrets", "shop", "c", "get"), on("", "secrets", "shop", "b", "get"), on("", "secrets", "shop", "a", "get")),
			want: []string{"get secrets in shop (a, b, c, and 2 more)"},
		},
		"in no namespace": {list: on("", "namespaces", "", "shop", "create"), want: []string{"create namespaces (shop)"}},
		"all objects":     {list: on("", "pods", "shop", "", "*"), want: []string{"* pods in shop"}},
		"said more than once": {
			list: append(on("", "pods", "shop", "a", "get"), on("", "pods", "shop", "a", "get")...),
			want: []string{"get pods in shop (a)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.list.Lines()); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// server is an API server that answers about one account, and notes what it is asked.
type server struct {
	rules map[string]Rules
	// remembered are answers from before.
	remembered map[string]Rules
	allowed    Permissions
	fails      error

	mu    sync.Mutex
	asked []string
}

func (s *server) note(question string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, question)
}

func (s *server) Rules(_ context.Context, namespace string, fresh bool) (Rules, error) {
	if rules, known := s.remembered[namespace]; known && !fresh {
		rules.Remembered = true
		return rules, nil
	}
	s.note("rules in " + namespace)
	return s.rules[namespace], s.fails
}

func (s *server) Allowed(_ context.Context, p Permission) (bool, error) {
	s.note(Permissions{p}.Lines()[0])
	return slices.Contains(s.allowed, p) || slices.Contains(s.allowed, p.unnamed()), nil
}

func allows(verbs, resources, names []string) Rules {
	return Rules{Resources: []authorizationv1.ResourceRule{
		{Verbs: verbs, APIGroups: []string{""}, Resources: resources, ResourceNames: names},
	}}
}

func TestMissing(t *testing.T) {
	two := slices.Concat(on("", "configmaps", "shop", "a", "get", "patch"), on("", "configmaps", "shop", "b", "get", "patch"))
	crds := slices.Concat(on("x", "crds", "", "a", "get"), on("x", "crds", "", "b", "get"))
	all := func(rules Rules) map[string]Rules { return map[string]Rules{"shop": rules} }
	everything := allows([]string{"*"}, []string{"*"}, nil)
	incomplete := allows([]string{"get"}, []string{"configmaps"}, nil)
	incomplete.Incomplete = true
	cases := map[string]struct {
		server *server
		needed Permissions
		fresh  bool
		want   Permissions
		asked  []string
	}{
		"nothing is needed": {server: &server{}},
		"one question for a namespace": {
			server: &server{rules: all(everything)}, needed: two, asked: []string{"rules in shop"},
		},
		"some is missing": {
			server: &server{rules: all(allows([]string{"get", "patch"}, []string{"configmaps"}, []string{"a"}))}, needed: two,
			want: two[2:], asked: []string{"rules in shop"},
		},
		"remembered": {server: &server{remembered: all(everything)}, needed: two},
		"remembered, but asked for anew": {
			server: &server{remembered: all(everything)}, needed: two, fresh: true, want: two, asked: []string{"rules in shop"},
		},
		"what is missing is not said from memory": {
			server: &server{remembered: all(Rules{}), rules: all(everything)}, needed: two, asked: []string{"rules in shop"},
		},
		"rules that are not complete": {
			server: &server{rules: all(incomplete), allowed: on("", "configmaps", "shop", "b", "patch")}, needed: two,
			want: two[1:2],
			asked: []string{
				"patch configmaps in shop", "patch configmaps in shop (a)", "patch configmaps in shop (b)", "rules in shop",
			},
		},
		"in no namespace, allowed for all objects": {
			server: &server{allowed: on("x", "crds", "", "", "get")}, needed: crds, asked: []string{"get crds.x"},
		},
		"in no namespace, allowed by name": {
			server: &server{allowed: on("x", "crds", "", "b", "get")}, needed: crds, want: crds[:1],
			asked: []string{"get crds.x", "get crds.x (a)", "get crds.x (b)"},
		},
		"a single object in no namespace": {
			server: &server{}, needed: crds[:1], want: crds[:1], asked: []string{"get crds.x (a)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Missing(t.Context(), tc.server, tc.needed, tc.fresh)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append(Permissions{}, tc.want...), append(Permissions{}, got...)); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
			slices.Sort(tc.server.asked)
			if diff := cmp.Diff(tc.asked, tc.server.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissingFailsWithTheServer(t *testing.T) {
	broken := errors.New("broken")
	needed := on("", "configmaps", "shop", "a", "get")
	if _, err := Missing(t.Context(), &server{fails: broken}, needed, false); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestPolicyRules(t *testing.T) {
	rule := func(group string, resources, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, ResourceNames: names, Verbs: verbs}
	}
	cases := map[string]struct {
		list Permissions
		want []rbacv1.PolicyRule
	}{
		"one rule for what has the same verbs": {
			list: slices.Concat(on("", "secrets", "shop", "", "get", "patch"), on("", "configmaps", "shop", "", "patch", "get"),
				on("apps", "deployments", "shop", "", "get", "patch")),
			want: []rbacv1.PolicyRule{
				rule("", []string{"configmaps", "secrets"}, nil, "get", "patch"),
				rule("apps", []string{"deployments"}, nil, "get", "patch"),
			},
		},
		"names": {
			list: slices.Concat(on("", "secrets", "shop", "b", "get"), on("", "secrets", "shop", "a", "get")),
			want: []rbacv1.PolicyRule{rule("", []string{"secrets"}, []string{"a", "b"}, "get")},
		},
		"no name where all are allowed": {
			list: slices.Concat(on("", "secrets", "shop", "", "get"), on("", "secrets", "shop", "a", "get", "delete")),
			want: []rbacv1.PolicyRule{
				rule("", []string{"secrets"}, nil, "get"), rule("", []string{"secrets"}, []string{"a"}, "delete"),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := PolicyRules(tc.list)
			if diff := cmp.Diff(tc.want, got, cmpEmpty); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			// What the rules give is what was wanted of them.
			for _, p := range tc.list {
				if !slices.Contains(Given(got, "shop"), p) && !slices.Contains(Given(got, "shop"), p.unnamed()) {
					t.Errorf("the rules do not give %v", p)
				}
			}
		})
	}
}

// cmpEmpty makes no difference between no names and an empty list of them.
var cmpEmpty = cmp.Transformer("names", func(rule rbacv1.PolicyRule) map[string][]string {
	return map[string][]string{
		"groups": rule.APIGroups, "resources": rule.Resources, "verbs": rule.Verbs,
		"names": append([]string{}, rule.ResourceNames...),
	}
})
