package process

import (
	"fmt"
	"runtime"
)

// version and revision are what the linker puts in ("make release-binaries"): the version of the release, and the commit
// that it is built from.
var (
	version  = "development"
	revision = "unknown"
)

// describeVersion is what --version prints of a program, without its name.
func describeVersion() string {
	return fmt.Sprintf("%s (revision %s, %s)", version, revision, runtime.Version())
}

// userAgent is who a program says that it is to the API server, which has it in its audit log. The default field manager is
// what is before the slash.
func userAgent(program string) string {
	return fmt.Sprintf("%s/%s (%s/%s) %s", program, version, runtime.GOOS, runtime.GOARCH, revision)
}
