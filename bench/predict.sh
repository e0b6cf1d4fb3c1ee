#!/usr/bin/env bash
# Compares what `fargpu bench app` predicts with the times of the same program over emulated links
# that were not used for fitting. Server, with a simulated GPU, and client are on this host. Prints
# for each program and link the predicted and the measured time, and the error.
#   bench/predict.sh [--build-dir DIR] [--rounds N] [--fit] [--links "LINK…"] [--programs "NAME…"]
#                    [--server ADDRESS] [--command "COMMAND ARGS…"]
#   --build-dir DIR    the build (build/release)
#   --rounds N         runs of each way, in turn; the medians are compared (5)
#   --fit              predict with --fit
#   --links LINKS      emulated links
#   --programs NAMES   of those below: waits copies both threads
#   --server ADDRESS   this server instead of one with a simulated GPU
#   --command COMMAND  this program instead of those below
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

build_dir=$ROOT/build/release
rounds=5
fit=
links="rtt=50us,bandwidth=25Gbps rtt=200us,bandwidth=10Gbps rtt=1ms,bandwidth=100Gbps"
programs="waits copies both threads"
server=
command=
options=()
for option in "$@"; do
  if [ "$option" = --fit ]; then fit=yes; else options+=("$option"); fi
done
parse_options build_dir rounds links programs server command -- "${options[@]}"
scratch=$(mktemp -d)
daemon=
# shellcheck disable=SC2329  # called by the trap
finish() {
  [ -z "$daemon" ] || kill "$daemon" || true
  wait
  rm -rf "$scratch"
}
trap finish EXIT

# COUNT COPIES THREADS MICROSECONDS of tests/e2e/programs/waits.cc
arguments() {
  case "$1" in
    waits) echo 2000 0 1 100 ;;
    copies) echo 0 200 1 0 ;;
    both) echo 1000 100 1 200 ;;
    threads) echo 1000 0 2 100 ;;
    *) die "no program '$1'" ;;
  esac
}

if [ -n "$server" ]; then
  FARGPU_SERVER=$server
else
  "$build_dir/bin/fargpud" --driver sim --listen 127.0.0.1:0 --port-file "$scratch/port" \
    >"$scratch/daemon.log" 2>&1 &
  daemon=$!
  for _ in $(seq 300); do
    [ -s "$scratch/port" ] && break
    sleep 0.1
  done
  [ -s "$scratch/port" ] || die "fargpud does not listen: $(cat "$scratch/daemon.log")"
  FARGPU_SERVER=127.0.0.1:$(cat "$scratch/port")
fi
export FARGPU_SERVER

# A member of the file: nanoseconds of the run, or of the link at a place of the list.
member() { python3 -c 'import json, sys
file = json.load(open(sys.argv[1]))
print(round((file["links"][int(sys.argv[2])] if sys.argv[2:] else file)["nanoseconds"]))' "$@"; }
# Nanoseconds of a run over the link $1, by the same clock as those of the run that predicts.
time_over() {
  FARGPU_LINK=$1 "$build_dir/bin/fargpu" bench app --json "$scratch/measured.json" -- \
    "${values[@]}" >"$scratch/out"
  member "$scratch/measured.json"
}
median() { sort -n "$1" | sed -n "$((($(wc -l <"$1") + 1) / 2))p"; }

[ -z "$command" ] || programs=$(basename "${command##* }")
printf '%-22s %-32s %12s %12s %9s\n' program link predicted measured error
for name in $programs; do
  if [ -n "$command" ]; then
    read -ra values <<<"$command"
  else
    read -ra values <<<"$build_dir/tests/programs/waits $(arguments "$name")"
  fi
  rm -f "$scratch"/*.measured "$scratch"/*.predicted
  for _ in $(seq "$rounds"); do
    flags=()
    for link in $links; do flags+=(--link "$link"); done
    [ -z "$fit" ] || flags+=(--fit)
    "$build_dir/bin/fargpu" bench app --json "$scratch/predicted.json" "${flags[@]}" -- \
      "${values[@]}" >"$scratch/out"
    place=0
    for link in $links; do
      # The links that were asked for come first.
      member "$scratch/predicted.json" $place >>"$scratch/$link.predicted"
      time_over "$link" >>"$scratch/$link.measured"
      place=$((place + 1))
    done
  done
  for link in $links; do
    awk -v name="$name" -v link="$link" -v predicted="$(median "$scratch/$link.predicted")" \
      -v measured="$(median "$scratch/$link.measured")" 'BEGIN {
        printf "%-22s %-32s %10.3f s %10.3f s %+8.1f %%\n", name, link, predicted / 1e9,
               measured / 1e9, (predicted / measured - 1) * 100 }'
  done
done
