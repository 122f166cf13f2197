#!/usr/bin/env bash
# Prints the path of a Go that is VERSION or newer: the installed one, or else exactly VERSION, which is fetched into GOPATH as a module. Go
# compares the module with the checksum database. Debian 12's golang-go (1.19) can do that.
#   tools/fetch_go.sh VERSION
set -euo pipefail

version="$1"
export GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off GO111MODULE=on

go="$(command -v go || true)"
[ -n "$go" ] || go=/usr/local/go/bin/go
if [ ! -x "$go" ]; then
  echo "error: no Go is installed, which this build needs: apt-get install golang-go" >&2
  exit 1
fi

newer() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }  # $1 is $2, or newer
if ! newer "$("$go" env GOVERSION | sed 's/^go//')" "$version"; then
  echo "Fetching Go $version" >&2
  toolchain="golang.org/toolchain@v0.0.1-go$version.linux-$("$go" env GOARCH)"
  "$go" mod download "$toolchain" >&2
  # A newer Go does this itself: files of modules are not executable, and none of them is called go.mod.
  root="$("$go" env GOPATH)/pkg/mod/$toolchain"
  chmod -R +x "$root/bin" "$root/pkg/tool"
  find "$root/src" -name _go.mod -execdir cp _go.mod go.mod \;
  go="$root/bin/go"
fi
echo "$go"
