#!/usr/bin/env bash
# Builds Tandem's image from its Dockerfile with buildah, in its own storage under build/container. The base is a Debian of debootstrap, in
# place of the registry's. tests/deploy/engine.sh runs the image.
#   tests/deploy/build_image.sh [--compile cpu|cuda] [ARGUMENT...]   ARGUMENT goes to buildah
# By default the executables are those of build/cpu-release. With --compile they are compiled in the image, which takes 15 minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=tandem
arguments=(--build-arg BINARIES=prebuilt)
if [ "${1:-}" = --compile ]; then
  name="tandem-compiled-$2"
  arguments=(--build-arg "BACKEND=$2")
  shift 2
else
  deploy/container/stage.sh
fi

base=docker.io/library/debian:12-slim  # the Dockerfile's base
if ! tests/deploy/engine.sh buildah inspect --type image "$base" >/dev/null 2>&1; then
  archive="$(tests/deploy/make_base_root.sh)"
  container="$(tests/deploy/engine.sh buildah from scratch)"
  tests/deploy/engine.sh buildah add --quiet "$container" "$archive" / >/dev/null
  tests/deploy/engine.sh buildah commit --quiet --rm "$container" "$base" >/dev/null
fi
tests/deploy/engine.sh buildah bud --isolation chroot --format docker --pull-never "${arguments[@]}" "$@" \
  -f deploy/container/Dockerfile -t "localhost/$name" .
# Removes what the stages and earlier builds left.
tests/deploy/engine.sh buildah rm --all >/dev/null
tests/deploy/engine.sh buildah rmi --prune >/dev/null
