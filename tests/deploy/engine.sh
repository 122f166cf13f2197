#!/usr/bin/env bash
# Runs buildah or podman on the private storage of these tests, without parts that need systemd.
#   tests/deploy/engine.sh buildah|podman ARGUMENT...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

storage="$PWD/build/container"
mkdir -p "$storage"
export DISABLE_HC_SYSTEMD=true  # podman's health checks run only on request
driver="${TANDEM_STORAGE_DRIVER:-overlay}"
options=(--root "$storage/storage" --runroot "$storage/run" --storage-driver "$driver")
# No mount stays, so the folder can be removed like any other.
if [ "$driver" = overlay ]; then options+=(--storage-opt overlay.skip_mount_home=true); fi
program="$1"
shift
if [ "$program" = podman ]; then
  options+=(--runtime runc --cgroup-manager cgroupfs --events-backend none --tmpdir "$storage/tmp")
fi
exec "$program" "${options[@]}" "$@"
