#!/usr/bin/env bash
# Builds a Kubernetes control plane, for tests/helm/test_cluster.py: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
# kubectl, and kwok, which simulates nodes. It also fetches the definitions of the custom kinds that the chart uses. Everything comes from
# Go modules, as in fetch_helm.sh. A build takes 9 minutes on two cores, and gigabytes of disk during that time. Existing programs are left
# alone, and an interrupted build continues.
#   tools/fetch_cluster.sh [FOLDER]     default: build/tools/cluster
set -euo pipefail
folder="$(realpath -m "${1:-"$(dirname "${BASH_SOURCE[0]}")/../build/tools/cluster"}")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kubernetes=1.34.4  # 1.34 is the first with resource.k8s.io/v1, which values-dra.yaml needs
etcd=3.6.4  # smallest version; Kubernetes may require a newer one
kwok=0.7.0
# MODULE@VERSION/FILE of each definition.
definitions=(
  github.com/prometheus-operator/prometheus-operator@v0.85.0/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml
  github.com/prometheus-operator/prometheus-operator@v0.85.0/example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml
  github.com/kedacore/keda/v2@v2.18.0/config/crd/bases/keda.sh_scaledobjects.yaml
  github.com/cert-manager/cert-manager@v1.18.2/deploy/crds/crd-certificates.yaml
)
go_version=1.26.0  # Helm's version; these programs require an older one

programs=(etcd kwok kubectl kube-scheduler kube-controller-manager kube-apiserver)
# The parts of Kubernetes that are published as separate modules.
parts=(
  api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap code-generator component-base
  component-helpers controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms
  kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission
  sample-apiserver sample-cli-plugin sample-controller
)

mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
versions="kubernetes $kubernetes, etcd $etcd, kwok $kwok"
if [ "$(cat "$folder/versions" 2>/dev/null)" != "$versions" ]; then  # the tests expect these versions
  (cd "$folder" && rm -f "${programs[@]}")
  echo "$versions" >"$folder/versions"
fi
missing=()
for program in "${programs[@]}"; do
  [ -x "$folder/$program" ] || missing+=("$program")
done
if [ "$(cat "$folder/definitions/versions" 2>/dev/null)" = "${definitions[*]}" ]; then
  definitions=()
fi
[ ${#missing[@]} -gt 0 ] || [ ${#definitions[@]} -gt 0 ] || exit 0

work="$folder/go"
export GOPATH="$work/path" GOCACHE="$work/cache" GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off GO111MODULE=on CGO_ENABLED=0
mkdir -p "$work/kubernetes" "$work/kwok"
go="$(tools/fetch_go.sh "$go_version")"
unset GOROOT  # it may belong to another Go
GOPROXY="$("$go" env GOPROXY)"
export GOPROXY="${GOPROXY%,direct}"  # never from a repository

if [ ${#definitions[@]} -gt 0 ]; then
  rm -rf "$work/definitions"
  mkdir -p "$work/definitions"
  for definition in "${definitions[@]}"; do
    module="$(sed -E 's,(@[^/]+)/.*,\1,' <<<"$definition")"
    echo "Fetching ${definition##*/}"
    "$go" mod download "$module"
    install -m 0644 -t "$work/definitions" "$GOPATH/pkg/mod/$definition"
  done
  echo "${definitions[*]}" >"$work/definitions/versions"
  rm -rf "$folder/definitions"
  mv "$work/definitions" "$folder/definitions"
fi

# Kubernetes requires version 0.0.0 of its parts, which does not exist. Only a main module can name the right version, so this writes one
# without code. The line `godebug` is the same as in Kubernetes.
{
  printf '%s\n' "module cluster" "go $go_version" "godebug default=go1.24" "require k8s.io/kubernetes v$kubernetes" \
    "require go.etcd.io/etcd/server/v3 v$etcd"
  for part in "${parts[@]}"; do
    echo "replace k8s.io/$part => k8s.io/$part v0.${kubernetes#1.}"
  done
} >"$work/kubernetes/go.mod"
# kwok is made with other versions of these parts.
printf '%s\n' "module nodes" "go $go_version" "require sigs.k8s.io/kwok v$kwok" >"$work/kwok/go.mod"

# Without these flags, the API server would report version 0.0.0, and Helm would refuse it (kubeVersion in Chart.yaml).
version=k8s.io/component-base/version
minor="${kubernetes#1.}"
flags="-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%.*}"

for program in "${missing[@]}"; do
  module=kubernetes
  package="k8s.io/kubernetes/cmd/$program"
  case "$program" in
    etcd) package=go.etcd.io/etcd/server/v3 ;;
    kwok) module=kwok package=sigs.k8s.io/kwok/cmd/kwok ;;
  esac
  echo "Building $program"
  start=$SECONDS
  # -mod=mod adds further requirements to go.mod and go.sum.
  (cd "$work/$module" && "$go" build -mod=mod -trimpath -ldflags "$flags" -o "$work/built" "$package") >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    echo "error: $program was not built; the next run begins with it" >&2
    exit 1
  }
  mv "$work/built" "$folder/$program"
  echo "Built $program in $((SECONDS - start)) s"
done
rm -rf "$work"
echo "The control plane is in $folder"
