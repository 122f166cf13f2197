#!/usr/bin/env bash
# Makes the Python environment of the system tests in build/venv. Does nothing if it exists and is up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mkdir -p build
exec 9>build/venv.lock
flock 9
if cmp -s tests/system/requirements.txt build/venv/requirements.txt; then
  exit 0
fi
echo "Making build/venv"
rm -rf build/venv
python3 -m venv build/venv
# uv installs in a quarter of the time of pip. The tests write no bytecode, so it is made here.
build/venv/bin/pip install --quiet --disable-pip-version-check uv==0.13.9
build/venv/bin/uv pip install --quiet --python build/venv/bin/python --compile-bytecode -r tests/system/requirements.txt
cp tests/system/requirements.txt build/venv/
