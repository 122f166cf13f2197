#!/usr/bin/env bash
# Prints the path of the program with which the tests render the chart: tests/helm/renderer, which is
# `helm template` and `helm lint`, made of Helm's packages. With --whole it is Helm itself, which takes
# more than twice as long to build, and which test_cluster.py installs with. Each is built once into
# build/tools from Helm's Go module. Go compares the module and its dependencies with the checksum
# database. If the installed Go is too old for Helm, fetch_go.sh fetches a newer one as a module.
#   tools/fetch_helm.sh [--whole]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm_version=v3.22.0
go_version=1.26.0  # required by this version of Helm
kubernetes_minor=37  # minor version of the Kubernetes libraries that Helm is made with

tools="$PWD/build/tools"
sources="$PWD/tests/helm/renderer"
if [ "${1:-}" = --whole ]; then
  program="$tools/helm-$helm_version"
else
  program="$tools/helm-renderer-$helm_version-$(cat "$sources"/*.go | sha256sum | cut -c 1-12)"
fi
if [ -x "$program" ]; then
  echo "$program"
  exit 0
fi
mkdir -p "$tools"
exec 9>"$tools/lock"
flock 9
if [ -x "$program" ]; then  # another process has built it meanwhile
  echo "$program"
  exit 0
fi

# Only the executable stays.
work="$tools/go"
export GOPATH="$work/path" GOCACHE="$work/cache" GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off GO111MODULE=on CGO_ENABLED=0
rm -rf "$work"
mkdir -p "$work/main"
finish() {
  if [ ! -x "$program" ] && [ -e "$work/log" ]; then cat "$work/log" >&2; fi
  rm -rf "$work"
}
trap finish EXIT
go="$(tools/fetch_go.sh "$go_version")"
unset GOROOT  # it may belong to another Go

echo "Building ${program##*/}" >&2
start=$SECONDS
# A main module, for which Go chooses the versions that Helm's own module names.
cd "$work/main"
printf '%s\n' "module main" "go $go_version" "require helm.sh/helm/v3 $helm_version" >go.mod
package=helm.sh/helm/v3/cmd/helm
if [ "${1:-}" != --whole ]; then
  package=.
  cp "$sources/main.go" .
  client="k8s.io/client-go@$("$go" list -mod=mod -m -f '{{.Version}}' k8s.io/client-go 2>>"$work/log")"
  "$go" mod download "$client" >>"$work/log" 2>&1
  cp -r "$GOPATH/pkg/mod/$client" "$work/client-go"
  cp "$sources/scheme.go" "$work/client-go/kubernetes/scheme/register.go"
  echo "replace k8s.io/client-go => $work/client-go" >>go.mod
fi
# Like Helm's own builds, this build renders for the newest Kubernetes that it knows, unless an option
# names another version. Code that is not inlined (-l) and not described for debuggers (-dwarf=false) is
# compiled sooner, and the program runs for hundredths of a second.
capabilities=helm.sh/helm/v3/pkg/chartutil
flags="-s -w -X $capabilities.k8sVersionMajor=1 -X $capabilities.k8sVersionMinor=$kubernetes_minor"
"$go" build -mod=mod -trimpath -gcflags "all=-l -dwarf=false" -ldflags "$flags" -o "$work/built" "$package" >>"$work/log" 2>&1
mv "$work/built" "$program"
echo "Built ${program##*/} in $((SECONDS - start)) s" >&2
echo "$program"
