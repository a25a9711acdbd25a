// What the makers of Kubernetes, Helm and Compose say of docker/: their own types, renderer, admission and loader, as
// libraries. test_kubernetes.py and `make manifests` run it.
//
//	render CHART RELEASE NAMESPACE [VALUES.yaml]   what `helm template` renders, in the order of installing;
//	                                               of the templates named in $ONLY
//	lint CHART [VALUES.yaml]                       `helm lint`: a line a fault
//	check FILE...                                  each object in its own type, strictly; a JSON line each
//	reach FILE...                                  asked on stdin, a JSON line a connection: does a NetworkPolicy let it?
//	compose FILE...                                the project as Compose resolves it, in JSON
package main

import (
	"fmt"
	"os"
)

func main() {
	commands := map[string]func([]string) error{
		"render": render, "lint": lintChart, "check": check, "reach": reach, "compose": compose,
	}
	if len(os.Args) < 3 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes render|lint|check|reach|compose FILE...")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
