package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
)

func readValues(files []string) (chartutil.Values, error) {
	if len(files) == 0 {
		return chartutil.Values{}, nil
	}
	return chartutil.ReadValuesFile(files[0])
}

// The values are held against values.schema.json on the way.
func render(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("render CHART RELEASE NAMESPACE [VALUES.yaml]")
	}
	chart, err := loader.LoadDir(args[0])
	if err != nil {
		return err
	}
	values, err := readValues(args[3:])
	if err != nil {
		return err
	}
	release := chartutil.ReleaseOptions{Name: args[1], Namespace: args[2], Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	strict := engine.Engine{Strict: true, LintMode: false}
	rendered, err := strict.Render(chart, all)
	if err != nil {
		return err
	}
	only := strings.Split(os.Getenv("ONLY"), ",")
	for name := range rendered {
		if !strings.HasSuffix(name, ".yaml") || (only[0] != "" && !slices.Contains(only, filepath.Base(name))) {
			delete(rendered, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return err
	}
	for _, m := range manifests {
		fmt.Printf("---\n%s\n", strings.Trim(m.Content, "\n"))
	}
	return nil
}

func lintChart(args []string) error {
	values, err := readValues(args[1:])
	if err != nil {
		return err
	}
	said := lint.AllWithKubeVersion(args[0], values, "stile", nil)
	for _, m := range said.Messages {
		if m.Severity >= support.WarningSev {
			fmt.Println(m.Error())
		}
	}
	if said.HighestSeverity >= support.ErrorSev {
		os.Exit(1)
	}
	return nil
}
