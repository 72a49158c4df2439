package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies"
)

// Policies is the compiled policy set.
type Policies interface {
	Defaults() bool
	Default(ctx context.Context, in policies.Input) (*unstructured.Unstructured, error)
	ValidateDefaulted(ctx context.Context, in policies.Input) policies.Decision
}

// StageSets admits StageSets.
type StageSets struct {
	// Policies returns the set that holds now, nil before the first is compiled; each request uses one set from beginning to
	// end.
	Policies func() Policies
	// Namespaces finds the Namespace that a StageSet is in.
	Namespaces Namespaces
	// Authorizer answers rules that ask what the requester may do; when nil they cannot be evaluated.
	Authorizer policies.Authorizer
}

// errNotCompiled is what requests are told that come before readiness.
var errNotCompiled = errors.New("this replica of stageset-admission has not compiled the policies yet; try again")

// Default answers the mutating webhook: a patch that fills in what the policies default. It refuses what it cannot decode,
// and, unless only labels and annotations change, what a policy cannot default that does not ignore that: the reconciler
// would not apply it. The result is validated in any case.
func (s *StageSets) Default(ctx context.Context, request admission.Request) admission.Response {
	set := s.Policies()
	if set == nil {
		return admission.Errored(http.StatusServiceUnavailable, errNotCompiled)
	}
	if !set.Defaults() && !mentionsDefaults(request) {
		return admission.Allowed("")
	}
	in, err := s.decode(request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if in.Object == nil {
		return admission.Allowed("")
	}
	if in.OldObject != nil && classify(in.OldObject, in.Object) != updateEvaluated {
		return admission.Allowed("")
	}
	var warnings []string
	if in.Namespace, err = s.Namespaces.Get(ctx, request.Namespace); err != nil {
		loggerOf(ctx, request).Error(err, "defaulted without the Namespace")
		warnings = append(warnings, "some defaults may be missing: "+unread(err, request.Namespace))
	}
	defaulted, err := fillIn(ctx, set, in)
	var failed policies.DefaultError
	switch {
	case errors.As(err, &failed) && !specUnchanged(in):
		return denied(request, failed).WithWarnings(warnings...)
	case err != nil:
		warnings = append(warnings, "some defaults are missing: "+err.Error())
	}
	response := admission.Allowed("")
	if defaulted != in.Object {
		response = patch(request.Object.Raw, defaulted)
	}
	return response.WithWarnings(warnings...)
}

// fillIn has the policies fill in what is missing.
func fillIn(ctx context.Context, set Policies, in policies.Input) (*unstructured.Unstructured, error) {
	ctx, span := begin(ctx, "default")
	defer span.End()
	return set.Default(ctx, in)
}

// evaluate has the policies evaluated, on what they make of the object.
func evaluate(ctx context.Context, set Policies, in policies.Input) policies.Decision {
	ctx, span := begin(ctx, "evaluate")
	defer span.End()
	return set.ValidateDefaulted(ctx, in)
}

// mentionsDefaults tells whether an object of the request may have the annotation that says what was defaulted. The API
// server writes names without escapes.
func mentionsDefaults(request admission.Request) bool {
	annotation := []byte(v1.AnnotationDefaultedBy)
	return bytes.Contains(request.Object.Raw, annotation) || bytes.Contains(request.OldObject.Raw, annotation)
}

// Validate answers the validating webhook: everything that the policies refuse, at once. It decides on what the policies make
// of the object, whether or not the mutating webhook was asked: nobody else asks what the requester may do, and the reconciler
// fills in what is missing.
func (s *StageSets) Validate(ctx context.Context, request admission.Request) admission.Response {
	in, err := s.decode(request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	set := s.Policies()
	if set == nil {
		return admission.Errored(http.StatusServiceUnavailable, errNotCompiled)
	}
	if in.OldObject != nil && in.Object != nil {
		switch classify(in.OldObject, in.Object) {
		case updateAllowed:
			return admission.Allowed("")
		case updateRefused:
			return denied(request, []policies.Violation{violationDeleting})
		}
	}
	in.Namespace, err = s.Namespaces.Get(ctx, request.Namespace)
	deletes := request.Operation == admissionv1.Delete
	if deletes && terminating(in.Namespace) {
		return admission.Allowed("")
	}
	decision := evaluate(ctx, set, in)
	if deletes && len(decision.Denied) > 0 && s.Namespaces.terminating(ctx, request.Namespace) {
		return admission.Allowed("") // which the cache did not know yet
	}
	response := respond(request, decision)
	if in.OldObject != nil && in.Object != nil {
		if warning := reordered(in.OldObject, in.Object); warning != "" {
			response.Warnings = append(response.Warnings, warning)
		}
	}
	if len(decision.Ignored) > 0 {
		loggerOf(ctx, request).Info("let pass what could not be evaluated", "ignored", lines(decision.Ignored))
	}
	if err != nil {
		// The rules that look at the namespace were decided by the failurePolicy of their policy; this says why.
		loggerOf(ctx, request).Error(err, "validated without the Namespace")
		response.Warnings = append(response.Warnings, unread(err, request.Namespace))
	}
	if log.FromContext(ctx).V(1).Enabled() {
		logVerdict(loggerOf(ctx, request).V(1), response)
	}
	return response
}

func logVerdict(logger logr.Logger, response admission.Response) {
	if response.Allowed {
		logger.Info("allowed")
	} else {
		logger.Info("denied", "violations", len(response.Result.Details.Causes))
	}
}

// decode reads the objects of a request: of a CREATE the new one, of a DELETE the old one, of an UPDATE both.
func (s *StageSets) decode(request admission.Request) (policies.Input, error) {
	in := policies.Input{Request: &request.AdmissionRequest, Authorizer: s.Authorizer}
	var err error
	if in.Object, err = decodeObject(request.Object); err != nil {
		return in, fmt.Errorf("decoding the object of the request: %w", err)
	}
	if in.OldObject, err = decodeObject(request.OldObject); err != nil {
		return in, fmt.Errorf("decoding the old object of the request: %w", err)
	}
	if in.Object == nil && in.OldObject == nil {
		return in, fmt.Errorf("the request for %s holds no object", request.Operation)
	}
	return in, nil
}

func decodeObject(raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	if !present(raw) {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(raw.Raw)
}

// patch is the JSON patch from the object of the request, byte for byte as it came, to the defaulted one.
func patch(original []byte, defaulted *unstructured.Unstructured) admission.Response {
	current, err := json.Marshal(defaulted.Object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the defaulted object: %w", err))
	}
	return admission.PatchResponseFromRaw(original, current)
}

func terminating(namespace *corev1.Namespace) bool {
	return namespace != nil && namespace.DeletionTimestamp != nil
}
