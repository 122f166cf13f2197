#!/usr/bin/env bash
# Collects the files of an image's /opt/tandem: the stripped executables of a build, the scripts beside them, and the embedded pair.
#   deploy/container/stage.sh [BUILD [FOLDER]]     default: build/cpu-release, into build/container/tandem
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build="${1:-build/cpu-release}"
folder="${2:-build/container/tandem}"

rm -rf "$folder"
mkdir -p "$folder/bin"
# The bundle's libraries are for a host without packages. An image has the libraries of the distribution.
cmake --install "$build" --prefix "$PWD/$build/staged" --strip >/dev/null
install -m 0755 "$build"/staged/bin/* deploy/container/tandem-workers deploy/container/tandem-healthcheck "$folder/bin"
for model in target draft; do
  install -D -m 0644 -t "$folder/models/tales/$model" "models/tales/$model"/*
done
install -m 0644 models/tales/README.md "$folder/models/tales"
install -m 0644 LICENSE "$folder"
find "$folder" -type d -exec chmod 0755 {} +
rm -rf "$build/staged"
