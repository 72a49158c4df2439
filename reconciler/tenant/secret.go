package tenant

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// withholdSecret takes the server's message out of an error about the content of a Secret, since a value of the wrong type
// is quoted in it ("expected string, got …"). Refusals by permission, policy, conflict or validation do not quote values
// and stay as they are.
func withholdSecret(err error, object *unstructured.Unstructured) error {
	var status *apierrors.StatusError
	if object.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) || !errors.As(err, &status) {
		return err
	}
	switch status.ErrStatus.Reason {
	case metav1.StatusReasonBadRequest, metav1.StatusReasonInternalError, metav1.StatusReasonUnknown:
	default:
		return err
	}
	withheld := status.ErrStatus.DeepCopy()
	withheld.Message = "the API server cannot read the Secret, and what it says is withheld because it may quote values: " +
		secretFault(object)
	withheld.Details = &metav1.StatusDetails{Kind: "secrets", Name: object.GetName()}
	return &apierrors.StatusError{ErrStatus: *withheld}
}

// withholdDenial takes what an admission webhook or policy says out of an error about a Secret that is to be deleted: it was
// shown the live Secret, may quote its values, and they are not among those that are known from a release. Which of them
// refuses stays.
func withholdDenial(err error, gvk schema.GroupVersionKind) error {
	var status *apierrors.StatusError
	if gvk.GroupKind() != (schema.GroupKind{Kind: "Secret"}) || !errors.As(err, &status) {
		return err
	}
	for _, denied := range []string{" denied the request", " denied request"} { // by a webhook, by a policy
		if who, _, found := strings.Cut(status.ErrStatus.Message, denied); found {
			withheld := status.ErrStatus.DeepCopy()
			withheld.Message = who + denied + "; what it says is withheld because it may quote values of the Secret"
			withheld.Details = nil
			return &apierrors.StatusError{ErrStatus: *withheld}
		}
	}
	return err
}

// secretFault names the fields that are wrong as far as that can be told without the server.
func secretFault(object *unstructured.Unstructured) string {
	var wrong []string
	data, isMap := object.Object["data"].(map[string]any)
	if !isMap && object.Object["data"] != nil {
		wrong = []string{"data"}
	}
	for key, value := range data {
		text, isText := value.(string)
		if _, err := base64.StdEncoding.DecodeString(text); !isText || err != nil {
			wrong = append(wrong, "data."+key)
		}
	}
	if len(wrong) == 0 {
		return "check that it has only fields of a Secret, and that each is of the right type"
	}
	slices.Sort(wrong)
	return "the values under data must be base64 strings, which these are not: " + strings.Join(wrong, ", ")
}
