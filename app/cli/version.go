package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases.
var version = "dev"

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and Go version",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "admitone %s\ncommit %s\n%s %s/%s\n",
				release(), commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// release returns which Admitone this is. In another module's program it is the one that the
// module requires, and the module is named, since the commit below is its own.
func release() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/admitone/admitone" {
			return m.Version + " in " + info.Main.Path
		}
	}
	return version
}

// commit returns what the Go command noted of the checkout that the binary was built from.
func commit() string {
	rev, dirty := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				rev = s.Value
			case "vcs.modified":
				if s.Value == "true" {
					dirty = " with changes"
				}
			}
		}
	}
	return rev + dirty
}
