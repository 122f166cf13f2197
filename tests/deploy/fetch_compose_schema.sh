#!/usr/bin/env bash
# Prints the path of the schema of the Compose specification. It comes from the distribution's package docker-compose, unpacked into
# build/compose.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=build/compose
schema="$folder/usr/lib/python3/dist-packages/compose/config/compose_spec.json"
if [ ! -e "$schema" ]; then
  rm -rf "$folder.part"
  mkdir -p "$folder.part"
  # apt's own user must be able to write to the download folder. Otherwise apt warns.
  (cd "$folder.part" && apt-get download -qq docker-compose 2>/dev/null >&2 && dpkg -x docker-compose_*.deb . && rm docker-compose_*.deb)
  rm -rf "$folder"
  mv "$folder.part" "$folder"
fi
echo "$PWD/$schema"
