#!/bin/sh
# Makes a bare Debian 12 a place for Tandem: the libraries that its executables are linked to, a user, a folder for sockets. Runs inside
# of what becomes the image.
set -eu
export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes

# A test compares these with what the executables name; what Debian has in every installation is not listed.
apt-get update -qq
apt-get install -y -qq --no-install-recommends \
  libabsl20220623 libc-ares2 libfmt9 libgrpc++1.51 libgrpc29 libhwy1 libpcre2-8-0 libprometheus-cpp-core1.0 libprotobuf32 libre2-9 \
  libspdlog1.10 libssl3 libstdc++6 libutf8proc2 zlib1g >/dev/null
# dpkg's own records stay: they say what is installed.
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/log/*

# Nobody here becomes anybody else.
find / -xdev -type f -perm /6000 -exec chmod a-s {} +

groupadd --gid 65532 tandem
useradd --key UID_MAX=65535 --uid 65532 --gid 65532 --no-create-home --home-dir /run/tandem --shell /usr/sbin/nologin --no-log-init tandem
install -d -o 65532 -g 65532 -m 0700 /run/tandem
