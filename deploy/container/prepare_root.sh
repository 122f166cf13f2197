#!/bin/sh
# Prepares a bare Debian 12 for Tandem: installs the libraries that the executables are linked to, and makes a user and a folder for
# sockets. It runs inside the future image.
set -eu
export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes

# A test compares this list with the libraries of the executables. libc6 and libgcc-s1 are not listed.
apt-get update -qq
apt-get install -y -qq --no-install-recommends \
  libabsl20220623 libbsd0 libc-ares2 libedit2 libfmt9 libgrpc++1.51 libgrpc29 libhwy1 libmd0 libpcre2-8-0 libprometheus-cpp-core1.0 \
  libprotobuf32 libre2-9 libspdlog1.10 libssl3 libstdc++6 libtinfo6 libutf8proc2 zlib1g >/dev/null
# dpkg's own records stay, because they list the installed packages.
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/log/*

# No process here needs to change its user.
find / -xdev -type f -perm /6000 -exec chmod a-s {} +

groupadd --gid 65532 tandem
useradd --key UID_MAX=65535 --uid 65532 --gid 65532 --no-create-home --home-dir /run/tandem --shell /usr/sbin/nologin --no-log-init tandem
install -d -o 65532 -g 65532 -m 0700 /run/tandem
