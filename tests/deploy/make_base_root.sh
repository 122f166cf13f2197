#!/usr/bin/env bash
# Prints the path of a bare Debian 12 with the contents of the image debian:12-slim. It is an archive that debootstrap makes once in
# build/container.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

archive="$PWD/build/container/base.tar"
root=build/container/base
if [ ! -e "$archive" ]; then
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase bookworm "$root" >build/container/debootstrap.log || {
    tail -n 20 build/container/debootstrap.log >&2
    exit 1
  }
  # Adds updates from the mirror that debootstrap used.
  mirror="$(awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list")"
  mirror="${mirror%/}"
  cat >"$root/etc/apt/sources.list" <<END
deb $mirror bookworm main
deb $mirror bookworm-updates main
deb $mirror-security bookworm-security main
END
  # These settings make it slim: no documentation except licenses, and no translations, now and later.
  cat >"$root/etc/dpkg/dpkg.cfg.d/slim" <<'END'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/groff/*
path-exclude /usr/share/info/*
path-exclude /usr/share/linda/*
path-exclude /usr/share/lintian/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
END
  find "$root/usr/share/doc" -type f ! -name copyright -delete
  rm -rf "$root"/usr/share/{groff,info,linda,lintian,locale,man}/* "$root"/var/{lib/apt/lists,cache/apt,log}/*
  tar --numeric-owner -C "$root" -cf "$archive.part" .
  mv "$archive.part" "$archive"
  rm -rf "$root"
fi
echo "$archive"
