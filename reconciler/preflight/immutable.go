package preflight

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/ownership"
)

// immutableError is a refusal to change an object, with what can be done although the object cannot be changed.
type immutableError struct {
	refusal error
	reason  string
	advice  string
}

// Error is what the API server says, and what can be done.
func (e *immutableError) Error() string { return e.refusal.Error() + ": " + e.advice }

// Unwrap is what the API server says.
func (e *immutableError) Unwrap() error { return e.refusal }

// resolve decides about an object that the API server refuses to change. If it would take the object as a new one, what the
// stage's conflicts say happens: the object will be recreated, is left alone, or is an *immutableError. Every other refusal
// stays what it is. The wording of a refusal does not count, since webhooks and policies word it as they like.
func (c checker) resolve(ctx context.Context, object *Object, refusal error) error {
	if !mayBeAboutChange(refusal) || apierrors.IsForbidden(refusal) && !c.mayBePolicy(ctx, object) {
		return refusal
	}
	desired := object.Desired()
	live, err := c.stage.target.Get(ctx, desired.GroupVersionKind(), object.key.Namespace, object.key.Name)
	if apierrors.IsNotFound(err) {
		return refusal
	}
	if err != nil {
		return err
	}
	action, advice := c.stage.conflicts.action(desired, live)
	refused := &immutableError{refusal: refusal, reason: v1.ReasonApplyFailed, advice: advice}
	if err := c.acceptAnew(ctx, desired); err != nil {
		if !IsRefusal(err) {
			return err
		}
		if action == v1.ConflictFail {
			return refusal
		}
		refused.advice = "it is not made anew, because a new one would be refused too: " + err.Error()
		return refused
	}
	seen := c.stage.Live(ctx, live)
	switch action {
	case v1.ConflictKeepExisting:
		object.live, object.state, object.kept = &seen, drift.Unchanged, true
		return nil
	case v1.ConflictRecreate:
		object.live, object.state, object.recreate = &seen, drift.Changed, true
		return c.mayRecreate(ctx, object, refused)
	default:
		return refused
	}
}

// mayRecreate is refused, with the permission that the account lacks to make the object anew; nil if it lacks none.
func (c checker) mayRecreate(ctx context.Context, object *Object, refused *immutableError) error {
	resource, err := c.stage.target.Resource(ctx, object.Desired().GroupVersionKind())
	if err != nil {
		return err
	}
	missing, err := c.stage.target.Missing(ctx, permissionsFor(object.key, resource, "delete", "create"), false)
	if err != nil || len(missing) == 0 {
		return err
	}
	refused.reason = v1.ReasonPermissionsMissing
	refused.advice = fmt.Sprintf("to make it anew, %s needs the permission to %s it",
		c.stage.account.Username(), missing[0].Verb)
	return refused
}

// mayBePolicy is true when it is not for lack of a permission that an object is forbidden: roles and bindings are forbidden to
// whoever does not have what they give.
func (c checker) mayBePolicy(ctx context.Context, object *Object) bool {
	if object.key.Group == rbacGroup {
		return false
	}
	missing, err := c.stage.target.Missing(ctx, object.applyNeeds(ctx, c.stage.target), false)
	return err == nil && len(missing) == 0
}

// mayBeAboutChange is true for a refusal of what the object would become. One about metadata is not: a wrong UID is said to
// be immutable too.
func mayBeAboutChange(refusal error) bool {
	var status apierrors.APIStatus
	content := apierrors.IsInvalid(refusal) || apierrors.IsBadRequest(refusal) || apierrors.IsForbidden(refusal)
	if !content || !errors.As(refusal, &status) {
		return false
	}
	if status.Status().Details == nil {
		return true
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata" || strings.HasPrefix(cause.Field, "metadata.") {
			return false
		}
	}
	return true
}

// errProbed says that the name of a probe is in use, which it never is unless somebody wants it to be.
var errProbed = apierrors.NewBadRequest("an object with the name of the probe exists")

// acceptAnew creates an object under another name, as a dry-run.
func (c checker) acceptAnew(ctx context.Context, desired *unstructured.Unstructured) error {
	sum := sha256.Sum256([]byte(desired.GetNamespace() + "/" + desired.GetName()))
	probe := desired.DeepCopy()
	probe.SetName("stageset-probe-" + hex.EncodeToString(sum[:])[:12])
	answer, err := c.applier.Apply(ctx, c.stage.target, probe, ownership.Request{DryRun: true})
	if err == nil && answer.GetResourceVersion() != "" {
		return errProbed
	}
	return err
}
