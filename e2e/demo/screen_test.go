package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestScreen(t *testing.T) {
	var out strings.Builder
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	s := &screen{out: &out, clock: clock}
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	s.heading("It begins.")
	s.begin("Something short")
	pass(1234 * time.Millisecond)
	s.done("with a detail")
	s.begin("Something slow")
	pass(754 * time.Second)
	s.done("")
	s.begin("Something with more to say")
	s.transcript("kubectl apply", "the answer\nand a "+strings.Repeat("long ", 20)+"one\n")
	s.blank()
	s.event("+0.1s", change{"webshop/shop", "Verifying", strings.TrimSpace(strings.Repeat("words ", 16))})
	s.event("+0.2s", change{"webshop/shop", "Ready", ""})
	s.done("which is not told, as there was something below")
	s.begin("Something that fails")
	pass(time.Second)
	s.failed("no luck", "logs/a.log", []string{"why", "\twhy " + strings.Repeat("not ", 30)}, "Try again.")
	s.ending()
	s.done("Logs stay.")

	const want = `
It begins.

 1. Something short                                             1.2s   with a detail
 2. Something slow                                            12m34s
 3. Something with more to say
    $ kubectl apply
    the answer
    and a long long long long long long long long long long long long long long long long long long long
    long one

       +0.1s  webshop/shop       Verifying  words words words words words words words words words words
              words words words words words words
       +0.2s  webshop/shop       Ready

 4. Something that fails: failed after 1.0s

    Problem     no luck
    Log         logs/a.log
                | why
                |   why not not not not not not not not not not not not not not not not not not not not not…
    What to do  Try again.

Stop everything, and leave no process and no port               0.0s   Logs stay.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}
