#!/usr/bin/env bash
# Makes the result of the Dockerfile in build/container/chroot, with its own scripts and without a container engine. Prints the path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

root="$PWD/build/container/chroot"
script=deploy/container/prepare_root.sh
deploy/container/stage.sh
# Installing packages takes a while. It is done once for each version of the script.
if ! cmp -s "$script" "$root.prepared"; then
  archive="$(tests/deploy/make_base_root.sh)"
  rm -rf "$root" "$root.prepared"
  mkdir -p "$root"
  tar --numeric-owner -C "$root" -xf "$archive"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  cp "$script" "$root/"
  chroot "$root" /prepare_root.sh >&2
  rm "$root/prepare_root.sh"
  cp "$script" "$root.prepared"
fi
rm -rf "$root/opt/tandem"
cp -r --no-preserve=ownership build/container/tandem "$root/opt/tandem"
echo "$root"
