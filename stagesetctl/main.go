// Command stagesetctl is for people who write StageSetPolicies and StageSets: it checks, tests, shows and explains them where
// they are written, with the code that admission and reconciler decide with. It never changes anything in a cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/stageset/stageset/stagesetctl/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Main(ctx, os.Args[1:], app.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
