package tenant

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/stageset/stageset/reconciler/permissions"
)

// Permission is one thing that an account may do with objects of a resource.
type Permission = permissions.Permission

// Permissions are several.
type Permissions = permissions.Permissions

// Resource is the resource of a kind, as permissions name it; a meta.NoKindMatchError if the cluster does not serve the
// kind.
func (c *Client) Resource(ctx context.Context, gvk schema.GroupVersionKind) (string, error) {
	found, err := c.cluster.kinds.get(ctx, c, gvk)
	return found.plural, err
}

// May says whether the account has the permission for a verb on an object; an empty name is any object. It is asked of the
// authorizer each time: whether admission, a quota or a policy then refuses the request is another question.
func (c *Client) May(ctx context.Context, verb string, gvk schema.GroupVersionKind, namespace, name string) (bool, error) {
	kind, err := c.cluster.kinds.get(ctx, c, gvk)
	if err != nil {
		return false, err
	}
	if !kind.namespaced {
		namespace = ""
	}
	return asker{c}.Allowed(ctx, Permission{
		Verb: verb, Group: gvk.Group, Resource: kind.plural, Namespace: namespace, Name: name,
	})
}

// Missing are those of the needed permissions that the account does not have; see permissions.Missing. That it has one may
// be known from an earlier question, up to 30 s ago, unless the answer has to be fresh. Of an account that may not even ask
// about itself nothing is missing: only the requests themselves tell.
func (c *Client) Missing(ctx context.Context, needed Permissions, fresh bool) (Permissions, error) {
	missing, err := permissions.Missing(ctx, asker{c}, needed, fresh)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return missing, err
}

// asker asks about an account as the account itself.
type asker struct{ *Client }

var _ permissions.Asker = asker{}

// Rules implements permissions.Asker.
func (a asker) Rules(ctx context.Context, namespace string, fresh bool) (permissions.Rules, error) {
	of := rightsOf{caller: a.caller, uid: a.uid, namespace: namespace}
	if !fresh {
		if known, ok := a.cluster.rights.get(of); ok {
			known.Remembered = true
			return known, nil
		}
	}
	review := authorizationv1.SelfSubjectRulesReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectRulesReview"},
		Spec:     authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}
	asked := a.cluster.rights.clock.Now()
	length, err := a.review(ctx, "selfsubjectrulesreviews", &review)
	if err != nil {
		return permissions.Rules{}, err
	}
	rules := permissions.Rules{Resources: review.Status.ResourceRules, Incomplete: review.Status.Incomplete}
	if len(rules.Resources) > maxRules {
		return permissions.Rules{Incomplete: true}, nil
	}
	if length <= rightsLength && len(rules.Resources) <= rightsRules {
		a.cluster.rights.add(of, rules, asked)
	}
	return rules, nil
}

// Allowed implements permissions.Asker.
func (a asker) Allowed(ctx context.Context, p Permission) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: p.Attributes()},
	}
	_, err := a.review(ctx, "selfsubjectaccessreviews", &review)
	return review.Status.Allowed, err
}

// review has the API server answer a question about the account, and says how long the answer was.
func (c *Client) review(ctx context.Context, resource string, question any) (int, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return 0, err
	}
	request := c.requests.Verb(http.MethodPost).AbsPath(versionPath(authorizationv1.SchemeGroupVersion), resource).
		SetHeader("Content-Type", "application/json").Body(body)
	answer, err := c.send(ctx, request)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(answer, question); err != nil {
		return 0, unreadable(err)
	}
	return len(answer), nil
}

const (
	// rightsKept is for how long an account is believed to have the permissions that it had.
	rightsKept = 30 * time.Second
	// rightsRemembered bounds how many answers are remembered, rightsLength how long one may be, in bytes, and rightsRules how
	// many rules it may have: most have some dozen, but whoever writes roles can have them list thousands of names.
	rightsRemembered = 256
	rightsLength     = 32 << 10
	rightsRules      = 512
	// maxRules is how many rules are compared with what is needed; of an account with more, each permission is asked about.
	maxRules = 4096
)

// rightsOf is an account in a namespace. One that was deleted and made again is another one, and so is whoever another
// kubeConfig leads to.
type rightsOf struct {
	caller    string
	uid       types.UID
	namespace string
}

// rights are the rules of accounts as they were a moment ago. Safe for concurrent use.
type rights struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	cache *lru.Cache
}

// ruled is an answer, and when it was asked for.
type ruled struct {
	rules permissions.Rules
	asked time.Time
}

func newRights(passive clock.PassiveClock) *rights {
	return &rights{clock: passive, cache: lru.New(rightsRemembered)}
}

func (r *rights) get(of rightsOf) (permissions.Rules, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.cache.Get(of)
	if !ok || r.clock.Since(found.(ruled).asked) > rightsKept {
		return permissions.Rules{}, false
	}
	return found.(ruled).rules, true
}

func (r *rights) add(of rightsOf, rules permissions.Rules, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.Add(of, ruled{rules: rules, asked: asked})
}
