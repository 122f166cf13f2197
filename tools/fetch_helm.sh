#!/usr/bin/env bash
# Prints the path of Helm, with which the tests render the chart. Helm is built once into build/tools
# from its Go module. Go compares the module and its dependencies with the checksum database. If the
# installed Go is too old for Helm, fetch_go.sh fetches a newer one as a module.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm_version=v3.22.0
go_version=1.26.0  # required by this version of Helm
kubernetes_minor=37  # minor version of the Kubernetes libraries that Helm is made with

tools="$PWD/build/tools"
helm="$tools/helm-$helm_version"
if [ -x "$helm" ]; then
  echo "$helm"
  exit 0
fi
mkdir -p "$tools"
exec 9>"$tools/lock"
flock 9
if [ -x "$helm" ]; then  # another process has built it meanwhile
  echo "$helm"
  exit 0
fi

# Only the executable stays.
work="$tools/go"
export GOPATH="$work/path" GOCACHE="$work/cache" GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off GO111MODULE=on CGO_ENABLED=0
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
go="$(tools/fetch_go.sh "$go_version")"
unset GOROOT  # it may belong to another Go

echo "Building Helm $helm_version" >&2
start=$SECONDS
# Like Helm's own builds, this build renders for the newest Kubernetes that it knows, unless an option
# names another version.
capabilities=helm.sh/helm/v3/pkg/chartutil
flags="-s -w -X $capabilities.k8sVersionMajor=1 -X $capabilities.k8sVersionMinor=$kubernetes_minor"
GOBIN="$work/bin" "$go" install -trimpath -ldflags "$flags" "helm.sh/helm/v3/cmd/helm@$helm_version" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
mv "$work/bin/helm" "$helm"
echo "Built Helm in $((SECONDS - start)) s" >&2
echo "$helm"
