package celenv

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// generator makes expressions about what whole makes. Many do not compile, and some fail.
type generator struct {
	*rand.Rand
	// loops are the variables of the loops around.
	loops []string
}

func newGenerator(seed uint64) *generator { return &generator{Rand: rand.New(rand.NewPCG(seed, seed))} }

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

// condition is an expression for a bool, of at most depth levels.
func (g *generator) condition(depth int) string {
	if depth <= 0 {
		return g.one("true", "tenant", "has(object.spec.none)", "oldObject == null", g.text(0)+" in ["+g.text(0)+"]")
	}
	depth--
	switch g.IntN(8) {
	case 0, 1:
		return g.loop(g.one("all", "exists", "exists_one"), depth, g.condition)
	case 2:
		return "(" + g.condition(depth) + g.one(" && ", " || ") + g.condition(depth) + ")"
	case 3:
		return "!(" + g.condition(depth) + ")"
	case 4:
		return "(" + g.text(depth) + g.one(" == ", " != ", " < ", " <= ") + g.text(depth) + ")"
	case 5:
		return g.text(depth) + g.one(".startsWith(", ".endsWith(", ".contains(", ".matches(") + g.text(depth) + ")"
	case 6:
		return "(" + g.text(depth) + " in " + g.list(depth) + ")"
	default:
		return "(" + g.list(depth) + g.one(" == ", " != ") + g.list(depth) + ")"
	}
}

// text is an expression for a string.
func (g *generator) text(depth int) string {
	if depth <= 0 && len(g.loops) > 0 && g.IntN(2) == 0 {
		return g.one(g.loops...) + g.one("", ".name", ".sourceRef.namespace", ".?name.orValue('')", ".sourceRef.?none.orValue('x')")
	}
	if depth <= 0 {
		return g.one("'a'", "''", "'a long literal that is longer than ten characters'", "object.metadata.name", "object.spec['text']",
			"object.metadata.?labels[?'b'].orValue('q')", "object.spec.stages[0].name", "request.operation",
			"variables.v")
	}
	depth--
	switch g.IntN(5) {
	case 0:
		return "string(" + g.text(depth) + ")" + g.one(".lowerAscii()", ".trim()", ".substring(0)", ".replace('a', 'bb')")
	case 1:
		return "(" + g.text(depth) + " + " + g.text(depth) + ")"
	case 2:
		return "(" + g.condition(depth) + " ? " + g.text(depth) + " : " + g.text(depth) + ")"
	default:
		return g.text(0)
	}
}

// list is an expression for a list or a map.
func (g *generator) list(depth int) string {
	if depth <= 0 || g.IntN(2) == 0 {
		return g.one("object.spec.stages", "object.spec.items", "object.metadata.labels", "object.spec.?stages.orValue([])",
			"object.metadata.?labels.orValue({})", "[1, 2, 3]", "['a', 'b']", "object.spec.text.split('a')",
			"params.list", "variables.named")
	}
	depth--
	if g.IntN(2) == 0 {
		return "(" + g.list(depth) + " + " + g.list(depth) + ")"
	}
	if g.IntN(2) == 0 {
		return g.loop("filter", depth, g.condition)
	}
	return g.loop("map", depth, g.text)
}

func (g *generator) loop(macro string, depth int, body func(int) string) string {
	over := g.list(depth)
	name := fmt.Sprintf("v%d", len(g.loops))
	g.loops = append(g.loops, name)
	defer func() { g.loops = g.loops[:len(g.loops)-1] }()
	return over + "." + macro + "(" + name + ", " + body(depth) + ")"
}

// Whatever is generated is known to cost at least what it costs, and much of it is known to cost little.
func TestUncountedIsTheSameWhateverIsAsked(t *testing.T) {
	compiler, variables := countingCompiler(t)
	const tried, wanted = 800, 250
	found := 0
	for seed := range uint64(tried) {
		text := newGenerator(seed).condition(1 + int(seed%5))
		compiled, err := compiler.Compile(text, Bool)
		if err != nil || compiled.unmetered == nil {
			continue
		}
		found++
		counted{compiled, variables}.compare(t, text, whole(3), whole(maxItems))
	}
	if found < wanted {
		t.Errorf("%d of %d expressions were not counted, want %d", found, tried, wanted)
	}
}
