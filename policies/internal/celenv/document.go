package celenv

import (
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// documents are the objects that expressions saw last: one policy after the other sees the same ones.
type documents struct {
	last [4]*document
	next int
}

// document is an object that expressions see. It is for one goroutine.
type document struct {
	// fields do not change; identity is theirs.
	fields   map[string]any
	identity uintptr
	value    ref.Val
	// size is not known before it is asked for.
	size sizeClass
}

type sizeClass int

const (
	sizeUnknown sizeClass = iota
	sizeSmall
	sizeLarge
)

// none is the document of no object: null.
var none = &document{value: types.NullValue, size: sizeSmall}

// of is the document of the object with the fields; none without an object.
func (d *documents) of(fields map[string]any) *document {
	if fields == nil {
		return none
	}
	identity := reflect.ValueOf(fields).Pointer()
	for _, known := range d.last {
		if known != nil && known.identity == identity {
			return known
		}
	}
	seen := &document{fields: fields, identity: identity, value: newDocument(fields)}
	d.last[d.next] = seen // which keeps the fields, so that nothing else gets their identity
	d.next = (d.next + 1) % len(d.last)
	return seen
}

// isSmall tells whether what expressions cost on d is bounded by what is known of small objects.
func (d *document) isSmall() bool {
	if d.size == sizeUnknown {
		d.size = sizeLarge
		if small(d.fields) {
			d.size = sizeSmall
		}
	}
	return d.size == sizeSmall
}

// small tells whether fields are those of a small object. Its annotations and managed fields do not count: bound knows nothing
// of those.
func small(fields map[string]any) bool {
	if len(fields) > maxItems {
		return false
	}
	for name, field := range fields {
		if metadata, ok := field.(map[string]any); ok && name == "metadata" {
			if !smallMetadata(metadata) {
				return false
			}
		} else if !smallValue(field) {
			return false
		}
	}
	return true
}

func smallMetadata(metadata map[string]any) bool {
	if len(metadata) > maxItems {
		return false
	}
	for name := range countedMetadata {
		if !smallValue(metadata[name]) {
			return false
		}
	}
	return true
}

func smallValue(value any) bool {
	switch typed := value.(type) {
	case string:
		return len(typed) <= maxLength
	case []any:
		return len(typed) <= maxItems && !slices.ContainsFunc(typed, func(item any) bool { return !smallValue(item) })
	case map[string]any:
		if len(typed) > maxItems {
			return false
		}
		for key, item := range typed {
			if len(key) > maxLength || !smallValue(item) {
				return false
			}
		}
	case nil, bool, int64, float64:
	default:
		return false // nothing that JSON has
	}
	return true
}

// newDocument is value, a part of an object as JSON has it, as expressions see it. cel-go would convert the objects and lists
// within it anew whenever an expression reads one; here they are converted once, when the first of all expressions does. It
// is for one goroutine.
func newDocument(value any) ref.Val {
	converted := types.DefaultTypeAdapter.NativeToValue(value)
	switch typed := value.(type) {
	case map[string]any:
		return &documentMap{celMap: converted.(celMap), fields: typed}
	case []any:
		return &documentList{celList: converted.(celList), items: typed}
	default:
		return converted
	}
}

// celMap and celList are what cel-go's own maps and lists can do.
type (
	celMap interface {
		traits.Mapper
		traits.Foldable
		traits.Zeroer
	}
	celList interface {
		traits.Lister
		traits.Foldable
		traits.Zeroer
	}
)

// documentMap is cel-go's map, but for where it finds objects and lists.
type documentMap struct {
	celMap
	fields map[string]any
	read   []namedValue
}

type namedValue struct {
	name  string
	value ref.Val
}

// Find implements traits.Mapper.
func (m *documentMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return m.celMap.Find(key)
	}
	field, ok := m.fields[string(name)]
	if !ok {
		return nil, false
	}
	switch field.(type) {
	case map[string]any, []any:
		return m.part(string(name), field), true
	default:
		return types.DefaultTypeAdapter.NativeToValue(field), true
	}
}

// maxParts is how many objects and lists of one object are kept, so that looking through them is quick.
const maxParts = 8

// part is the object or list called name.
func (m *documentMap) part(name string, field any) ref.Val {
	for i := range m.read {
		if m.read[i].name == name {
			return m.read[i].value
		}
	}
	value := newDocument(field)
	if len(m.read) < maxParts {
		m.read = append(m.read, namedValue{name, value})
	}
	return value
}

// Get implements traits.Indexer.
func (m *documentMap) Get(key ref.Val) ref.Val {
	if value, ok := m.Find(key); ok {
		return value
	}
	return m.celMap.Get(key) // says what is wrong
}

// documentList is cel-go's list, but for where it gets its items.
type documentList struct {
	celList
	items []any
	read  []ref.Val
}

// Get implements traits.Indexer.
func (l *documentList) Get(index ref.Val) ref.Val {
	if i, ok := index.(types.Int); ok && i >= 0 && i < types.Int(len(l.items)) {
		return l.item(int(i))
	}
	return l.celList.Get(index) // says what is wrong, or takes another number for an index
}

func (l *documentList) item(i int) ref.Val {
	if l.read == nil {
		l.read = make([]ref.Val, len(l.items))
	}
	if l.read[i] == nil {
		l.read[i] = newDocument(l.items[i])
	}
	return l.read[i]
}

// Iterator implements traits.Iterable.
func (l *documentList) Iterator() traits.Iterator {
	return &documentIterator{Iterator: l.celList.Iterator(), list: l}
}

// documentIterator is cel-go's iterator, but for where it gets the items.
type documentIterator struct {
	traits.Iterator
	list *documentList
	next int
}

// HasNext implements traits.Iterator.
func (i *documentIterator) HasNext() ref.Val { return types.Bool(i.next < len(i.list.items)) }

// Next implements traits.Iterator.
func (i *documentIterator) Next() ref.Val {
	if i.next >= len(i.list.items) {
		return nil
	}
	i.next++
	return i.list.item(i.next - 1)
}
