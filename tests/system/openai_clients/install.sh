#!/usr/bin/env bash
# Installs the npm package of openai_clients in build/openai_clients. Does nothing if it is there and up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

mkdir -p build/openai_clients
exec 9>build/openai_clients.lock
flock 9
if cmp -s tests/system/openai_clients/package.json build/openai_clients/package.json &&
  [ -d build/openai_clients/node_modules/openai ]; then
  exit 0
fi
cp tests/system/openai_clients/package.json build/openai_clients/
npm install --prefix build/openai_clients --no-audit --no-fund --no-package-lock --loglevel=error
