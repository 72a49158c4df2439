package celenv

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// everything is an object with one of everything that JSON has.
func everything() map[string]any {
	many := map[string]any{}
	for i := range 2 * maxParts {
		many[fmt.Sprint(i)] = map[string]any{"i": int64(i)}
	}
	return map[string]any{
		"string": "a", "int": int64(1), "double": 1.5, "bool": true, "null": nil, "empty": map[string]any{}, "many": many,
		"list": []any{map[string]any{"name": "web"}, map[string]any{"name": "jobs"}, []any{}, "x", nil},
	}
}

// A document cannot be told from what cel-go itself makes of the same object.
func TestDocumentIsWhatCELMakesOfIt(t *testing.T) {
	want, got := types.DefaultTypeAdapter.NativeToValue(everything()), new(documents).of(everything()).value
	compare(t, "object", want, got)
	if diff := cmp.Diff(want.Value(), got.Value()); diff != "" {
		t.Errorf("value (-want +got):\n%s", diff)
	}
	if want.Equal(got) != types.True || got.Equal(want) != types.True {
		t.Error("they are not equal")
	}
	convert := reflect.TypeFor[*structpb.Value]()
	if _, err := got.ConvertToNative(convert); err != nil {
		t.Error(err)
	}
	if value := new(documents).of(nil).value; value != types.NullValue {
		t.Errorf("no object is %v", value)
	}
}

// compare compares what expressions can see of want and got, and of everything in them.
func compare(t *testing.T, path string, want, got ref.Val) {
	t.Helper()
	if got.Type() != want.Type() {
		t.Errorf("%s is a %s, want %s", path, got.Type(), want.Type())
		return
	}
	switch wanted := want.(type) {
	case traits.Mapper:
		compareParts(t, path, wanted, got.(traits.Mapper))
		compareKey(t, path, wanted, got.(traits.Mapper), types.String("missing"))
		compareKey(t, path, wanted, got.(traits.Mapper), types.Int(0))
	case traits.Lister:
		compareParts(t, path, wanted, got.(traits.Lister))
		for _, index := range []ref.Val{types.Int(-1), wanted.Size(), types.Double(0), types.Uint(0), types.String("0")} {
			compareError(t, path, wanted.Get(index), got.(traits.Lister).Get(index))
		}
	default:
		if want.Equal(got) != types.True {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// collection is what maps and lists have in common.
type collection interface {
	traits.Container
	traits.Indexer
	traits.Iterable
	traits.Sizer
}

func compareParts(t *testing.T, path string, want, got collection) {
	t.Helper()
	if want.Size() != got.Size() {
		t.Errorf("%s has the size %v, want %v", path, got.Size(), want.Size())
	}
	if wanted, zero := want.(traits.Zeroer).IsZeroValue(), got.(traits.Zeroer).IsZeroValue(); zero != wanted {
		t.Errorf("%s is zero: %t, want %t", path, zero, wanted)
	}
	n := types.Int(0)
	for it := got.Iterator(); it.HasNext() == types.True; n++ {
		next := it.Next()
		key := next
		if _, list := want.(traits.Lister); list {
			key = n
			compare(t, path, want.Get(key), next)
		}
		compare(t, fmt.Sprintf("%s[%v]", path, key), want.Get(key), got.Get(key))
		if want.Contains(next) != got.Contains(next) {
			t.Errorf("%s contains %v: %v", path, next, got.Contains(next))
		}
	}
	if n != want.Size() {
		t.Errorf("%s has %d parts, want %v", path, n, want.Size())
	}
}

func compareKey(t *testing.T, path string, want, got traits.Mapper, key ref.Val) {
	t.Helper()
	wanted, inWant := want.Find(key)
	found, inGot := got.Find(key)
	if inWant != inGot || wanted != found {
		t.Errorf("%s[%v] is %v, %t; want %v, %t", path, key, found, inGot, wanted, inWant)
	}
	compareError(t, path, want.Get(key), got.Get(key))
}

func compareError(t *testing.T, path string, want, got ref.Val) {
	t.Helper()
	if fmt.Sprint(want) != fmt.Sprint(got) {
		t.Errorf("%s: %v, want %v", path, got, want)
	}
}

// What one expression has read is not converted again for the next.
func TestDocumentIsConvertedOnce(t *testing.T) {
	object, seen := everything(), new(documents)
	first, second := seen.of(object).value.(traits.Mapper), seen.of(object).value.(traits.Mapper)
	if first != second {
		t.Error("the object was converted twice")
	}
	item := func(from traits.Mapper) ref.Val {
		return from.Get(types.String("list")).(traits.Lister).Get(types.IntZero)
	}
	if item(first) != item(second) {
		t.Error("an item was converted twice")
	}
	for range seen.last {
		if seen.of(everything()).value == first {
			t.Error("another object is taken for the same")
		}
	}
	if seen.of(object).value == first {
		t.Error("every object is kept that was ever seen")
	}
}
