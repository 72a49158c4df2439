package app

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release and revision are what the linker puts in ("make release-binaries"): the version of the release, and the commit that
// it is built from.
var release, revision string

// dialect is the module that decides which CEL the program knows.
const dialect = "k8s.io/apiserver"

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of the program, and of the CEL libraries in it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			_, err := fmt.Fprint(c.Out, version(info))
			return err
		},
	}
}

// version is what a program that was built like info is, a fact in each line.
func version(info *debug.BuildInfo) string {
	own := info.Main.Version
	if own == "" || own == "(devel)" {
		own = "built from source"
	}
	if release != "" {
		own = fmt.Sprintf("%s (revision %s)", release, revision)
	}
	text := fmt.Sprintf("stagesetctl %s\n%s\n", own, info.GoVersion)
	for _, module := range info.Deps {
		if module.Path == dialect {
			text += fmt.Sprintf("%s %s\n", module.Path, module.Version)
		}
	}
	return text
}

// userAgent is who the program says that it is to API servers, which have it in their audit logs.
func userAgent() string {
	return fmt.Sprintf("stagesetctl/%s (%s/%s) %s",
		cmp.Or(release, "development"), runtime.GOOS, runtime.GOARCH, cmp.Or(revision, "unknown"))
}
