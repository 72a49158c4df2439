package build

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// What a text is redacted to is not looked into again: not by the next value, and not by another StageSet's values.
func TestRedactLeavesItsMarksAlone(t *testing.T) {
	var marks Secrets
	for i := range 800 {
		marks.Add("[…" + strings.Repeat(" ", i))
	}
	text := strings.Repeat("[… ", maxText)
	got := marks.Redactor().Redact(text)
	if len(got) > 2*maxText || strings.Contains(got, "[… ") {
		t.Errorf("of %d bytes it makes %d: %.60s", len(text), len(got), got)
	}
	if again := marks.Redactor().Redact(got); len(again) > len(got) {
		t.Errorf("again, of %d bytes it makes %d: %.60s", len(got), len(again), again)
	}
}

// fastest is how long something takes at best.
func fastest(do func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for range 7 {
		begin := time.Now()
		do()
		best = min(best, time.Since(begin))
	}
	return best
}

// What it costs grows with the text, and hardly with how many values there are, also where text and values are made for it.
func TestRedactGrowth(t *testing.T) {
	redactor := func(values int) Redactor {
		var secrets Secrets
		for i := range values {
			secrets.Add(fmt.Sprintf("aaaaaaaa-%d…", i))
		}
		return secrets.Redactor()
	}
	const short = maxText / 16
	cost := func(values, bytes int) time.Duration {
		redactor, text := redactor(values), strings.Repeat("aaaaaaaa-1… ", bytes)[:bytes]
		return fastest(func() { redactor.Redact(text) })
	}
	base := cost(500, short)
	if longer := cost(500, maxText); longer > 100*base { // 16 times, and if it grew with the square, 256
		t.Errorf("a text of 16 times the length costs %d times as much", longer/base)
	}
	if more := cost(20_000, short); more > 15*base { // a few steps of a search, and if it grew with the number, 40 times
		t.Errorf("40 times as many values cost %d times as much", more/base)
	}
}

// A text is withheld when there is more to look for than is kept.
func TestRedactWithholds(t *testing.T) {
	var secrets Secrets
	for i := range maxForms {
		secrets.Add(fmt.Sprintf("hunter%d", i))
	}
	if size := secrets.Size(); size > maxForms+1 {
		t.Errorf("%d forms are kept, want hardly more than %d", size, maxForms)
	}
	if got := secrets.Redactor().Redact("hunter99999"); got != withheld {
		t.Errorf("got %q", got)
	}
}

// A value that a text has room for only in part is cut off with it.
func TestRedactLongTexts(t *testing.T) {
	var secrets Secrets
	secrets.Add(strings.Repeat("hunter22 ", maxText))
	got := secrets.Redactor().Redact("value: " + strings.Repeat("hunter22 ", maxText))
	if want := "value: …"; got != want {
		t.Errorf("got %.60q, want %q", got, want)
	}
}
