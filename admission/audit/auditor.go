package audit

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/store"
)

// StageSets have a role of their own: it is bound in each namespace that is watched, or in the whole cluster.
//
// +kubebuilder:rbac:groups=stages.metio.wtf,resources=stagesets,verbs=list,roleName=stageset-admission-watched
// +kubebuilder:rbac:groups=stages.metio.wtf,resources=stagesetpolicies/status,verbs=patch

// Permissions are what this package does with the process's own account, besides what package store does: in each namespace
// whose StageSets it evaluates, and with what is in none.
func Permissions() (inNamespaces, inNone []authorizationv1.ResourceAttributes) {
	group := v1.GroupVersion.Group
	return []authorizationv1.ResourceAttributes{{Group: group, Resource: "stagesets", Verb: "list"}},
		[]authorizationv1.ResourceAttributes{
			{Group: group, Resource: "stagesetpolicies", Subresource: "status", Verb: "patch"},
		}
}

const (
	// interval is how long what nobody has changed is not looked at again.
	interval = time.Hour
	// retry is when what could not be finished is begun again.
	retry = 10 * time.Second
	// settle is the pause after an audit, in which changes are collected. It is longer after one that took long, so that
	// audits never take more than one part in rest of the time.
	settle = time.Second
	rest   = 4
)

// Store holds the policies.
type Store interface {
	// Wait waits until there is a Snapshot.
	Wait(ctx context.Context) error
	// Snapshot is what holds now.
	Snapshot() store.Snapshot
	// Subscribe tells of changes of policies and parameters.
	Subscribe() <-chan struct{}
}

// Auditor evaluates what is stored. The manager runs it in the leader, as Start. All fields but Namespaces are required.
type Auditor struct {
	// Namespaces are those whose StageSets are evaluated; none is all of them.
	Namespaces []string
	// Installation is namespace/name of the release: whose entry of a status it writes.
	Installation string
	Store        Store
	// Params finds the parameters of policies.
	Params policies.ParamLookup
	// Client writes statuses, and reads policies, Namespaces and webhook configurations of the Cache. Live lists StageSets,
	// which are too many to keep.
	Client client.Client
	Live   client.Reader
	Cache  cache.Cache
	// Configuration is the name of the webhook configuration that says whether deletions are admitted.
	Configuration string
	// Check is what policies are checked with.
	Check   policies.CheckOptions
	Metrics *Metrics
	Clock   clock.Clock

	// assessments are of the texts that there are, by the UID of their policy.
	assessments map[types.UID]*assessment
}

// NeedLeaderElection is true: one replica speaks for all.
func (a *Auditor) NeedLeaderElection() bool { return true }

// Start audits until ctx is done.
func (a *Auditor) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("audit"))
	stored := a.Store.Subscribe()
	others, err := a.watch(ctx)
	if err != nil {
		return err
	}
	if a.Store.Wait(ctx) != nil {
		return nil
	}
	repeat(ctx, a.Clock, a.audit, stored, others)
	return nil
}

// repeat audits now, whenever it is told to, and every interval, until ctx is done.
func repeat(ctx context.Context, clock clock.Clock, audit func(context.Context) error, told, alsoTold <-chan struct{}) {
	for {
		began, next := clock.Now(), interval
		if err := audit(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the audit of stored StageSets is not complete; trying again", "delay", retry.String())
			next = retry
		}
		select {
		case <-ctx.Done():
			return
		case <-clock.After(max(settle, rest*clock.Since(began))):
		}
		select {
		case <-ctx.Done():
			return
		case <-told:
		case <-alsoTold:
		case <-clock.After(next):
		}
	}
}

// audit evaluates everything once, by one set of policies, and reports.
func (a *Auditor) audit(ctx context.Context) error {
	now := a.Store.Snapshot()
	namespaces, err := a.namespaces(ctx)
	if err != nil {
		return err
	}
	found, err := a.evaluate(ctx, now.Set, namespaces)
	if err != nil {
		return err
	}
	a.Metrics.set(now.Set.Policies(), found)
	return a.report(ctx, now, namespaces, found)
}

func (a *Auditor) namespaces(ctx context.Context) (map[string]*corev1.Namespace, error) {
	var list corev1.NamespaceList
	if err := a.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing Namespaces: %w", err)
	}
	byName := make(map[string]*corev1.Namespace, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName, nil
}

// report writes the status of each stored policy. What fails for one does not keep the others from theirs.
func (a *Auditor) report(
	ctx context.Context, now store.Snapshot, namespaces map[string]*corev1.Namespace, found *findings,
) error {
	deletes, err := a.deletionsAreRegistered(ctx)
	if err != nil {
		return err
	}
	summaries := map[types.UID]policies.Summary{}
	for _, summary := range now.Set.Policies() {
		if !summary.BuiltIn {
			summaries[summary.UID] = summary
		}
	}
	a.assess(ctx, now.Stored)
	var first error
	for i := range now.Stored {
		policy := &now.Stored[i]
		entry := a.entry(ctx, view{
			policy: policy, summary: summaries[policy.UID], assessment: a.assessments[policy.UID],
			namespaces: namespaces, deletes: deletes, found: found,
		})
		if err := a.write(ctx, policy, entry); err != nil && first == nil {
			first = fmt.Errorf("writing the status of StageSetPolicy %s: %w", policy.Name, err)
		}
	}
	return first
}

// view is everything that the entry of a policy is made of.
type view struct {
	policy     *v1alpha1.StageSetPolicy
	summary    policies.Summary
	assessment *assessment
	namespaces map[string]*corev1.Namespace
	// deletes tells whether the webhook is called for deletions.
	deletes bool
	found   *findings
}
