#!/usr/bin/env bash
# Installs what is missing, builds, and shows Tandem on the small pair of models that comes with it.
#   ./demo.sh [PROMPT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

tools/build.sh cpu-release tandem

tandem=build/cpu-release/bin/tandem
prompt=${1:-Once upon a time there was a king who}
echo
"$tandem" generate --compare --echo --seed 7 --temperature 0.7 --max-tokens 120 "$prompt"

cat <<NEXT

Try next, here in $PWD:
  $tandem generate --compare --temperature 0 "A fox and a wolf were walking together"
  $tandem serve                     # then, in another terminal: $tandem info --connect 127.0.0.1:50051
  $tandem bench                     # speedup and acceptance over draft lengths, beside theory's prediction
  $tandem --help
  ./test.sh
NEXT
