#!/usr/bin/env bash
# Installs the packages that building and testing Tandem needs, from Debian's or Ubuntu's own packages. If none is missing, it
# does nothing and takes less than a second. Needs root or sudo only if a package is missing.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache mold pkg-config git ca-certificates
  libgrpc++-dev libgrpc-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev
  libboost-dev libboost-context-dev libgtest-dev libgmock-dev libhwy-dev
  nlohmann-json3-dev libspdlog-dev libcli11-dev libpcre2-dev libutf8proc-dev libssl-dev openssl prometheus-cpp-dev
  libedit-dev
  python3 python3-venv libnss-wrapper zstd
)
if [ "${1:-}" = "--with-checks" ]; then
  packages+=(clang clang-format clang-tidy libclang-rt-dev shellcheck
    buildah podman runc debootstrap systemd golang-go)
  # A browser for the tests of the live page. Ubuntu has no package of one.
  if grep -qx 'ID=debian' /etc/os-release; then packages+=(chromium fonts-dejavu-core); fi
  # The npm package of OpenAI tests the gateway.
  command -v npm >/dev/null || packages+=(nodejs npm)
fi

# Chat templates are compiled with cargo 1.75 or newer. Debian 12 has such a cargo under another name.
if [ "$({ cargo --version 2>/dev/null || echo cargo 0; } | cut -d ' ' -f 2 | cat - <(echo 1.75.0) | sort -V | head -n 1)" != 1.75.0 ]; then
  if grep -qx 'VERSION_ID="12"' /etc/os-release && grep -qx 'ID=debian' /etc/os-release; then
    packages+=(cargo-web)
  else
    packages+=(cargo)
  fi
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "Installing ${#missing[@]} packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: these packages are missing and neither root nor sudo is at hand to install them" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
