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
build/venv/bin/pip install --quiet --disable-pip-version-check -r tests/system/requirements.txt
cp tests/system/requirements.txt build/venv/
