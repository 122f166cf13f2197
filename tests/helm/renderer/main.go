// What `helm template` and `helm lint` do, from Helm's own packages: it loads a chart, merges values,
// checks them with the schema, renders, sorts and lints. The rest of Helm, most of which are clients of
// clusters and registries, takes most of the time of a build. tools/fetch_helm.sh builds this.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
)

type list []string

func (l *list) String() string        { return strings.Join(*l, ",") }
func (l *list) Set(text string) error { *l = append(*l, text); return nil }

type options struct {
	namespace, kubeVersion, showOnly string
	strict, quiet                    bool
	apis, files, sets, texts         list
	arguments                        []string
}

// parse takes options before, between and after arguments, as Helm does.
func parse(words []string) (*options, error) {
	var o options
	flags := flag.NewFlagSet("helm", flag.ContinueOnError)
	flags.StringVar(&o.namespace, "namespace", "default", "")
	flags.StringVar(&o.kubeVersion, "kube-version", "", "")
	flags.StringVar(&o.showOnly, "show-only", "", "")
	flags.BoolVar(&o.strict, "strict", false, "")
	flags.BoolVar(&o.quiet, "quiet", false, "")
	flags.Var(&o.apis, "api-versions", "")
	flags.Var(&o.files, "values", "")
	flags.Var(&o.sets, "set", "")
	flags.Var(&o.texts, "set-string", "")
	for len(words) > 0 {
		if err := flags.Parse(words); err != nil {
			return nil, err
		}
		words = flags.Args()
		for len(words) > 0 && !strings.HasPrefix(words[0], "-") {
			o.arguments = append(o.arguments, words[0])
			words = words[1:]
		}
	}
	return &o, nil
}

func (o *options) values() (map[string]interface{}, error) {
	values := map[string]interface{}{}
	for _, file := range o.files {
		more, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("failed to parse %s: %w", file, err)
		}
		values = chartutil.MergeTables(more, values)
	}
	for _, set := range o.sets {
		if err := strvals.ParseInto(set, values); err != nil {
			return nil, fmt.Errorf("failed parsing --set data: %w", err)
		}
	}
	for _, text := range o.texts {
		if err := strvals.ParseIntoString(text, values); err != nil {
			return nil, fmt.Errorf("failed parsing --set-string data: %w", err)
		}
	}
	return values, nil
}

func (o *options) version() (*chartutil.KubeVersion, error) {
	if o.kubeVersion == "" {
		return nil, nil
	}
	version, err := chartutil.ParseKubeVersion(o.kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("invalid kube version '%s': %s", o.kubeVersion, err)
	}
	return version, nil
}

// render returns the text of `helm template NAME CHART`.
func render(o *options) (string, error) {
	if len(o.arguments) != 2 {
		return "", fmt.Errorf("want NAME and CHART, got %q", o.arguments)
	}
	name := o.arguments[0]
	chart, err := loader.Load(o.arguments[1])
	if err != nil {
		return "", err
	}
	values, err := o.values()
	if err != nil {
		return "", err
	}
	version, err := o.version()
	if err != nil {
		return "", err
	}
	if err := chartutil.ValidateReleaseName(name); err != nil {
		return "", fmt.Errorf("release name %q: %w", name, err)
	}
	if err := chartutil.ProcessDependenciesWithMerge(chart, values); err != nil {
		return "", err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	if version != nil {
		capabilities.KubeVersion = *version
	}
	capabilities.APIVersions = append(capabilities.APIVersions, o.apis...)
	release := chartutil.ReleaseOptions{Name: name, Namespace: o.namespace, Revision: 1, IsInstall: true}
	given, err := chartutil.ToRenderValues(chart, values, release, capabilities)
	if err != nil {
		return "", err
	}
	if wanted := chart.Metadata.KubeVersion; wanted != "" && !chartutil.IsCompatibleRange(wanted, capabilities.KubeVersion.String()) {
		return "", fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", wanted, capabilities.KubeVersion.String())
	}
	files, err := engine.Engine{}.Render(chart, given)
	if err != nil {
		return "", err
	}
	for file := range files {
		if strings.HasSuffix(file, "NOTES.txt") {
			delete(files, file)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, manifest := range manifests {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", manifest.Name, manifest.Content)
	}
	all := strings.TrimSpace(text.String()) + "\n"
	for _, hook := range hooks {
		all += fmt.Sprintf("---\n# Source: %s\n%s\n", hook.Path, hook.Manifest)
	}
	if o.showOnly == "" {
		return all, nil
	}
	documents := releaseutil.SplitManifests(all)
	keys := make([]string, 0, len(documents))
	for key := range documents {
		keys = append(keys, key)
	}
	sort.Sort(releaseutil.BySplitManifestsOrder(keys))
	shown := ""
	for _, key := range keys {
		source, _, _ := strings.Cut(documents[key], "\n")
		if _, path, found := strings.Cut(source, "/"); found && path == o.showOnly {
			shown += fmt.Sprintf("---\n%s\n", documents[key])
		}
	}
	if shown == "" {
		return "", fmt.Errorf("could not find template %s in chart", o.showOnly)
	}
	return shown, nil
}

// check prints what `helm lint CHART` finds.
func check(o *options) error {
	if len(o.arguments) != 1 {
		return fmt.Errorf("want CHART, got %q", o.arguments)
	}
	if _, err := os.Stat(filepath.Join(o.arguments[0], "Chart.yaml")); err != nil {
		return err
	}
	values, err := o.values()
	if err != nil {
		return err
	}
	version, err := o.version()
	if err != nil {
		return err
	}
	bearable := support.WarningSev
	if o.strict {
		bearable = support.InfoSev
	}
	failed := false
	linter := lint.AllWithKubeVersion(o.arguments[0], values, o.namespace, version)
	for _, message := range linter.Messages {
		if !o.quiet || message.Severity > support.InfoSev {
			fmt.Println(message)
		}
		failed = failed || message.Severity > bearable
	}
	if failed {
		return errors.New("the chart failed")
	}
	return nil
}

func run(words []string) error {
	if len(words) == 0 {
		return errors.New("want template or lint")
	}
	o, err := parse(words[1:])
	if err != nil {
		return err
	}
	switch words[0] {
	case "template":
		text, err := render(o)
		fmt.Print(text)
		return err
	case "lint":
		return check(o)
	}
	return fmt.Errorf("want template or lint, got %q", words[0])
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
