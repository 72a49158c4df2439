// Command stageset-admission is the admission webhook server for StageSets: it fills in defaults and refuses what the
// policies forbid. It never applies anything; that is the reconciler's work.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/stageset/stageset/admission/app"
)

func main() {
	os.Exit(app.Main(ctrl.SetupSignalHandler(), os.Args[1:], os.Stderr))
}
