#!/usr/bin/env bash
# Prints the path of Helm, which the tests of the chart render with. Built once into build/tools, from its Go module: Go compares it and
# what it needs with the checksum database. Debian 12's golang-go (1.19) will do: where Go is older than Helm wants, the right one is
# fetched as a module too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm_version=v3.22.0
go_version=1.26.0  # that this version of Helm asks for
kubernetes_minor=37  # of the Kubernetes libraries that it is made with

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

go="$(command -v go || true)"
[ -n "$go" ] || go=/usr/local/go/bin/go
if [ ! -x "$go" ]; then
  echo "error: no Go is installed, and Helm is built with it: apt-get install golang-go" >&2
  exit 1
fi

# Nothing stays but the executable.
work="$tools/go"
export GOPATH="$work/path" GOCACHE="$work/cache" GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off GO111MODULE=on CGO_ENABLED=0
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT

newer() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }  # $1 is $2, or newer
if ! newer "$("$go" env GOVERSION | sed 's/^go//')" "$go_version"; then
  echo "Fetching Go $go_version" >&2
  toolchain="golang.org/toolchain@v0.0.1-go$go_version.linux-$("$go" env GOARCH)"
  (cd "$work" && "$go" mod download "$toolchain" >&2)
  # What a newer Go does by itself with such a module: files of modules are not executable, and none is called go.mod.
  root="$GOPATH/pkg/mod/$toolchain"
  chmod -R +x "$root/bin" "$root/pkg/tool"
  find "$root/src" -name _go.mod -execdir cp _go.mod go.mod \;
  go="$root/bin/go"
  unset GOROOT
fi

echo "Building Helm $helm_version" >&2
start=$SECONDS
# Like Helm's own builds it renders for the newest Kubernetes that it knows, unless it is told another.
capabilities=helm.sh/helm/v3/pkg/chartutil
flags="-s -w -X $capabilities.k8sVersionMajor=1 -X $capabilities.k8sVersionMinor=$kubernetes_minor"
GOBIN="$work/bin" "$go" install -trimpath -ldflags "$flags" "helm.sh/helm/v3/cmd/helm@$helm_version" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
mv "$work/bin/helm" "$helm"
echo "Built Helm in $((SECONDS - start)) s" >&2
echo "$helm"
