#!/usr/bin/env bash
# Builds the engine of chat templates (common/chat/jinja) and copies the static library to ARCHIVE. All presets share one build in
# build/tools/jinja. cargo fetches the crates that Cargo.lock names, and compares their checksums. The first build takes 15 to 30
# seconds.
#   tools/build_jinja.sh ARCHIVE
set -euo pipefail
archive="$(realpath -m "${1:?usage: tools/build_jinja.sh ARCHIVE}")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

oldest=1.75.0
find_cargo() {
  local cargo version
  for cargo in "$(command -v cargo || true)" "$HOME/.cargo/bin/cargo" /usr/bin/cargo; do
    [ -x "$cargo" ] || continue
    version="$("$cargo" --version 2>/dev/null | cut -d ' ' -f 2 || true)"
    if [ -n "$version" ] && [ "$(printf '%s\n' "$oldest" "${version%%-*}" | sort -V | head -n 1)" = "$oldest" ]; then
      echo "$cargo"
      return
    fi
  done
  echo "error: chat templates need cargo $oldest or newer: run tools/install_dependencies.sh" >&2
  return 1
}

cargo="$(find_cargo)"
target=build/tools/jinja
mkdir -p "$target" "$(dirname "$archive")"
exec 9>"$target/lock"
flock 9
log="$target/log"
# A wrapper for another project's builds, or its flags, would make another library.
env -u RUSTFLAGS -u CARGO_BUILD_TARGET "$cargo" build --release --locked --manifest-path common/chat/jinja/Cargo.toml \
  --target-dir "$target" >"$log" 2>&1 || {
  cat "$log" >&2
  exit 1
}
cp "$target/release/libtandem_jinja.a" "$archive"
