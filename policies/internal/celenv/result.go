package celenv

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// MaxMessageLength is the longest text that Message returns, in bytes, as for ValidatingAdmissionPolicy.
const MaxMessageLength = 5 << 10

// Bool evaluates x, which was compiled for Bool. The error is an *EvalError.
func (x *Expression) Bool(s *Scope) (bool, error) {
	value, err := s.evaluate(x)
	if err != nil {
		return false, err
	}
	result, ok := value.(types.Bool)
	if !ok {
		return false, unexpected(value, Bool)
	}
	return bool(result), nil
}

// Message evaluates x, which was compiled for String, to text for people: newlines become "; ", and what is longer than
// MaxMessageLength is cut. The error is an *EvalError.
func (x *Expression) Message(s *Scope) (string, error) {
	value, err := s.evaluate(x)
	if err != nil {
		return "", err
	}
	result, ok := value.(types.String)
	if !ok {
		return "", unexpected(value, String)
	}
	return OneMessage(string(result)), nil
}

// Annotation evaluates x, which was compiled for Annotation, to text like Message, and tells whether there is any. The error
// is an *EvalError.
func (x *Expression) Annotation(s *Scope) (string, bool, error) {
	value, err := s.evaluate(x)
	if err != nil {
		return "", false, err
	}
	switch result := value.(type) {
	case types.Null:
		return "", false, nil
	case types.String:
		return OneMessage(string(result)), true, nil
	default:
		return "", false, unexpected(value, Annotation)
	}
}

// OneMessage is text as Message returns it.
func OneMessage(text string) string {
	var lines []string
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return truncate(strings.Join(lines, "; "), MaxMessageLength)
}

// Object evaluates x, which was compiled for Object, to the object that it constructs, as JSON has it. The error is an
// *EvalError.
func (x *Expression) Object(s *Scope) (map[string]any, error) {
	value, err := s.evaluate(x)
	if err != nil {
		return nil, err
	}
	object, ok := value.(*dynamic.ObjectVal)
	if !ok {
		return nil, unexpected(value, Object)
	}
	// Object initializers are not type-checked by the compiler: Object{spec: Object.status{}} compiles.
	if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, &EvalError{Message: oneLine(err.Error())}
	}
	fields, err := jsonValue(object)
	if err != nil {
		return nil, err
	}
	result, ok := fields.(map[string]any)
	if !ok {
		return nil, unexpected(value, Object)
	}
	return result, nil
}

// Patch evaluates x, which was compiled for Patch, to a JSON Patch document. The error is an *EvalError.
func (x *Expression) Patch(s *Scope) ([]byte, error) {
	value, err := s.evaluate(x)
	if err != nil {
		return nil, err
	}
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, unexpected(value, Patch)
	}
	operations := []map[string]any{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		operation, ok := it.Next().(*mutation.JSONPatchVal)
		if !ok {
			return nil, unexpected(value, Patch)
		}
		entry := map[string]any{"op": operation.Op, "path": operation.Path}
		if operation.From != "" {
			entry["from"] = operation.From
		}
		if operation.Val != nil {
			if entry["value"], err = jsonValue(operation.Val); err != nil {
				return nil, err
			}
		}
		operations = append(operations, entry)
	}
	document, err := json.Marshal(operations)
	if err != nil {
		return nil, &EvalError{Message: err.Error()}
	}
	return document, nil
}

func unexpected(value ref.Val, want Result) *EvalError {
	return &EvalError{Message: fmt.Sprintf("evaluates to %s, not to %s", value.Type().TypeName(), want)}
}

// jsonValue is value as an unstructured object holds it. What JSON cannot say is an error, where a conversion would guess.
func jsonValue(value any) (any, error) {
	switch typed := value.(type) {
	case nil, bool, int64, float64, string:
		return typed, nil
	case types.Null, structpb.NullValue:
		return nil, nil
	case *dynamic.ObjectVal:
		return jsonValue(typed.Value())
	case map[string]any:
		return jsonFields(typed)
	case types.Bool, types.Int, types.Double, types.String:
		return typed.(ref.Val).Value(), nil
	}
	switch typed := types.DefaultTypeAdapter.NativeToValue(value).(type) {
	case *types.Err:
		return nil, &EvalError{Message: oneLine(typed.Error())}
	case traits.Mapper:
		return jsonMap(typed)
	case traits.Lister:
		return jsonList(typed)
	default:
		return nil, &EvalError{Message: fmt.Sprintf("sets a value of type %s, which JSON does not have: convert it, with "+
			"string() for example", typed.Type().TypeName())}
	}
}

func jsonFields(fields map[string]any) (any, error) {
	result := make(map[string]any, len(fields))
	for name, value := range fields {
		converted, err := jsonValue(value)
		if err != nil {
			return nil, err
		}
		result[name] = converted
	}
	return result, nil
}

func jsonList(list traits.Lister) (any, error) {
	result := []any{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		converted, err := jsonValue(it.Next())
		if err != nil {
			return nil, err
		}
		result = append(result, converted)
	}
	return result, nil
}

func jsonMap(entries traits.Mapper) (any, error) {
	result := map[string]any{}
	for it := entries.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, &EvalError{Message: fmt.Sprintf("sets a map with a key that is a %s, not a string", key.Type().TypeName())}
		}
		converted, err := jsonValue(entries.Get(key))
		if err != nil {
			return nil, err
		}
		result[string(name)] = converted
	}
	return result, nil
}
