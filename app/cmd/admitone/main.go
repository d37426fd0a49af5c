// Command admitone stands between messaging platforms and an application and hands each
// event on once.
package main

import (
	"os"

	"github.com/admitone/admitone/app/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
