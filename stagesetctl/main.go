// Command stagesetctl is for people who write StageSetPolicies and StageSets: it checks, tests, shows and explains them where
// they are written, with the code that admission and reconciler decide with. It never changes anything in a cluster.
package main

import (
	"context"
	"os"

	"github.com/stageset/stageset/stagesetctl/app"
)

// Whoever interrupts it interrupts reading: there is nothing to finish.
func main() {
	os.Exit(app.Main(context.Background(), os.Args[1:], app.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
