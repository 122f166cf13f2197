#!/usr/bin/env bash
# Prints the path of Helm, which the tests of the chart render with. Built once into build/tools,
# from its Go module: Go compares it and what it needs with the checksum database. Where Go is older
# than Helm wants, the right one is fetched as a module too (fetch_go.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm_version=v3.22.0
go_version=1.26.0  # that this version of Helm asks for
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
if [ -x "$helm" ]; then  # another one has built it meanwhile
  echo "$helm"
  exit 0
fi

# Nothing stays but the executable.
work="$tools/go"
export GOPATH="$work/path" GOCACHE="$work/cache" GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off GO111MODULE=on CGO_ENABLED=0
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
go="$(tools/fetch_go.sh "$go_version")"
unset GOROOT  # it may be another's

echo "Building Helm $helm_version" >&2
start=$SECONDS
# Like Helm's own builds it renders for the newest Kubernetes that it knows, unless it is told
# another.
capabilities=helm.sh/helm/v3/pkg/chartutil
flags="-s -w -X $capabilities.k8sVersionMajor=1 -X $capabilities.k8sVersionMinor=$kubernetes_minor"
GOBIN="$work/bin" "$go" install -trimpath -ldflags "$flags" "helm.sh/helm/v3/cmd/helm@$helm_version" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
mv "$work/bin/helm" "$helm"
echo "Built Helm in $((SECONDS - start)) s" >&2
echo "$helm"
