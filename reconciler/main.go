// Command stageset-reconciler applies StageSets: stage by stage, as the accounts that their tenants name. It has no write
// access of its own to anything that a tenant owns.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/stageset/stageset/reconciler/app"
)

func main() {
	os.Exit(app.Main(ctrl.SetupSignalHandler(), os.Args[1:], os.Stderr))
}
