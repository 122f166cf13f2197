#!/usr/bin/env bash
# Makes prebuilt packages in build/packages: the bundle as a .tar.zst, and a .deb for Debian and Ubuntu.
#   tools/package.sh [--level N]              builds what is missing, and prints the paths of the packages
#   tools/package.sh [--level N] --from DIR   takes the bundle of this build folder as it is
# N is the level of zstd for the archive (default 15). Level 3 takes half a second of processor time in place of 27, and 5 % more space.
# Both hold the executables with the libraries that they need, except libc, and the embedded pair of models. The .deb installs them in
# /opt/tandem, as the systemd units expect, and links /usr/bin/tandem.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=true
binaries=build/cpu-release
level=15
while [ $# -gt 0 ]; do
  case "$1" in
    --from)
      build=false
      binaries="${2:?--from needs a build folder}"
      ;;
    --level) level="${2:?--level needs a number}" ;;
    *)
      sed -n '2,7s/^# \{0,1\}//p' "$0"
      exit 2
      ;;
  esac
  shift 2
done

out=build/packages
if [ "$build" = true ]; then tools/build.sh cpu-release bundle >&2; fi
bundle="$(find "$binaries/bundle" -maxdepth 1 -type d -name 'tandem-*-linux-*' 2>/dev/null | sort | tail -n 1 || true)"
[ -n "$bundle" ] || {
  echo "error: $binaries/bundle has no bundle: run tools/package.sh without --from" >&2
  exit 1
}
name="$(basename "$bundle")"
version="${name#tandem-}"
version="${version%%-*}"
# Files have the time of the commit, so that packages of one commit are equal.
time="$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)"
export SOURCE_DATE_EPOCH="$time"

rm -rf "$out"
mkdir -p "$out"
tar --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner -C "$(dirname "$bundle")" -cf - "$name" |
  zstd -q "-$level" -T0 -o "$out/$name.tar.zst"

root="$out/deb"
mkdir -p "$root/DEBIAN" "$root/opt/tandem" "$root/usr/bin" "$root/lib/systemd/system" "$root/usr/lib/sysusers.d" \
  "$root/usr/share/doc/tandem"
cp -r "$bundle/bin" "$bundle/lib" "$bundle/share" "$root/opt/tandem/"
ln -s ../../opt/tandem/bin/tandem "$root/usr/bin/tandem"
cp deploy/systemd/*.service "$root/lib/systemd/system/"
cp deploy/systemd/tandem.sysusers.conf "$root/usr/lib/sysusers.d/tandem.conf"
cp deploy/systemd/*.env LICENSE CHANGELOG.md "$root/usr/share/doc/tandem/"
mv "$root/usr/share/doc/tandem/LICENSE" "$root/usr/share/doc/tandem/copyright"
glibc="$(getconf GNU_LIBC_VERSION | sed 's/.* //')"
cat >"$root/DEBIAN/control" <<END
Package: tandem
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The Tandem authors <tandem@localhost>
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: libc6 (>= $glibc)
Section: net
Priority: optional
Description: lossless speculative decoding as a service
 A small draft model guesses the next tokens, and the large target model checks
 them in one pass. Clients get exactly the output of the target, sooner.
END
cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
# The systemd units run as the user that the sysusers file names.
if command -v systemd-sysusers >/dev/null; then systemd-sysusers tandem.conf; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
END
chmod 755 "$root/DEBIAN/postinst"
find "$root" -exec touch --no-dereference --date="@$time" {} +
dpkg-deb --root-owner-group -Zzstd --build "$root" "$out/tandem_${version}_$(dpkg --print-architecture).deb" >&2
rm -rf "$root"
printf '%s\n' "$PWD/$out"/*
