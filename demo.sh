#!/usr/bin/env bash
# Installs what is missing, builds, and shows Tandem on the small pair of models that comes with it.
#   ./demo.sh [PROMPT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

tandem=build/cpu-release/bin/tandem
log=build/demo.log
prompt=${1:-Once upon a time there was a king who}

# progress TEXT: replaces the line on a terminal. Elsewhere only say writes.
progress() {
  if [ -t 1 ]; then printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "$1"; fi
}
say() {
  if [ -t 1 ]; then printf '\r\033[K'; fi
  echo "$1"
}

# last_step: what the log says last, as one line: "Building 12 of 66".
last_step() {
  tail -n 1 "$log" | sed -n -e 's/^Building \[\([0-9]*\)\/\([0-9]*\),.*/Building \1 of \2/p' -e t \
    -e 's/^\(Installing [0-9]* packages\).*/\1/p' -e t -e 's/^\(Configuring\).*/\1/p' -e t -e 's/^.*/Installing packages/p'
}

# step COMMAND...: runs a command with its output in the log, and shows one line about where it is.
step() {
  # The command has a process group of its own, so that Ctrl-C here ends all of it.
  setsid "$@" >>"$log" 2>&1 &
  child=$!
  trap 'kill -- -"$child" 2>/dev/null; wait "$child" 2>/dev/null; say "stopped"; exit 130' HUP INT TERM
  while kill -0 "$child" 2>/dev/null; do
    progress "$(last_step) ($SECONDS s; the log is $log)"
    sleep 0.3
  done
  trap - HUP INT TERM
  wait "$child" && return
  say "This step failed: $*"
  tail -n 30 "$log"
  echo "The whole log is $log."
  exit 1
}

mkdir -p build
: >"$log"
if [ -x "$tandem" ]; then
  say "This demo brings the build up to date and streams a completion twice, with and without drafts."
else
  say "This demo installs what is missing (packages of Debian), builds the server and streams a completion twice, with
and without drafts. That takes two to four minutes on two cores the first time, and seconds after that."
fi
if [ "$(id -u)" -eq 0 ]; then
  step tools/install_dependencies.sh
else
  tools/install_dependencies.sh >>"$log" || { tail -n 5 "$log"; exit 1; }  # sudo may ask for a password
fi
step tools/build.sh cpu-release tandem
say "Built in $SECONDS s."
echo
"$tandem" generate --compare --race --echo --seed 7 --temperature 0.7 --max-tokens 120 "$prompt"

cat <<NEXT

Try next, here in $PWD:
  $tandem generate --compare --temperature 0 "A fox and a wolf were walking together"
  $tandem serve                     # then, in another terminal: $tandem top --connect 127.0.0.1:50051
  $tandem bench                     # speedup and acceptance over draft lengths, beside theory's prediction
  $tandem --help
  ./test.sh
NEXT
