#!/usr/bin/env bash
# Prints the folder that has prometheus and promtool: the system's, or those of the distribution's package, unpacked into build/prometheus.
# The package is not installed, because its service would then run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  dirname "$(command -v promtool)"
  exit 0
fi
folder=build/prometheus
mkdir -p build
exec 9>"$folder.lock"  # two tests that run at the same time need it
flock 9
if [ ! -x "$folder/usr/bin/promtool" ]; then
  rm -rf "$folder.part"
  mkdir -p "$folder.part"
  # apt's own user must be able to write to the download folder. Otherwise apt warns.
  (cd "$folder.part" && apt-get download -qq prometheus 2>/dev/null >&2 && dpkg -x prometheus_*.deb . && rm prometheus_*.deb)
  rm -rf "$folder"
  mv "$folder.part" "$folder"
fi
echo "$PWD/$folder/usr/bin"
