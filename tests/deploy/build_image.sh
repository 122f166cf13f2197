#!/usr/bin/env bash
# Builds Tandem's image from its Dockerfile with buildah, in a storage of its own under build/container, over a Debian of debootstrap's
# in the place of the one that a registry has. tests/deploy/engine.sh runs it.
#   tests/deploy/build_image.sh [--compile cpu|cuda] [ARGUMENT...]   ARGUMENT: of buildah
# By default the executables are those of build/cpu-release. With --compile they are compiled inside, which takes a quarter of an hour.
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

base=docker.io/library/debian:12-slim  # what the Dockerfile asks for
if ! tests/deploy/engine.sh buildah inspect --type image "$base" >/dev/null 2>&1; then
  archive="$(tests/deploy/make_base_root.sh)"
  container="$(tests/deploy/engine.sh buildah from scratch)"
  tests/deploy/engine.sh buildah add --quiet "$container" "$archive" / >/dev/null
  tests/deploy/engine.sh buildah commit --quiet --rm "$container" "$base" >/dev/null
fi
tests/deploy/engine.sh buildah bud --isolation chroot --format docker --pull-never "${arguments[@]}" "$@" \
  -f deploy/container/Dockerfile -t "localhost/$name" .
# What stages, and earlier builds, left.
tests/deploy/engine.sh buildah rm --all >/dev/null
tests/deploy/engine.sh buildah rmi --prune >/dev/null
