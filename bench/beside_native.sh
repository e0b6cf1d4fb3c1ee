#!/usr/bin/env bash
# Runs a program of bench/*.cu natively and through fargpu in turn, on a machine with a GPU. Server
# and client are on this host; the client's GPU is hidden. Prints every line of the program with
# where it ran.
#   bench/beside_native.sh [--build-dir DIR] [--rounds N] [--programs "NAME…"]
#   --build-dir DIR   the build to measure (build/portable)
#   --rounds N        rounds, in turn (5)
#   --programs NAMES  programs of this folder ("graph_launch managed_add")
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

build_dir=$ROOT/build/portable
rounds=5
programs="graph_launch managed_add"
parse_options build_dir rounds programs -- "$@"
BUILD=$(realpath -- "$build_dir")
[ -x "$BUILD/bin/fargpu" ] || die "$BUILD/bin/fargpu is not there: build it first"
scratch=$(mktemp -d)
daemon=
# shellcheck disable=SC2329  # called by the trap
finish() {
  [ -z "$daemon" ] || kill "$daemon" || true
  wait
  rm -rf "$scratch"
}
trap finish EXIT
nvcc=$(find_cuda)/bin/nvcc
for program in $programs; do
  "$nvcc" -O2 -o "$scratch/$program" "$ROOT/bench/$program.cu"
done
"$BUILD/bin/fargpud" --listen 127.0.0.1:0 --port-file "$scratch/port" >"$scratch/log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
  [ -s "$scratch/port" ] && break
  sleep 0.1
done
server=127.0.0.1:$(cut -d' ' -f1 "$scratch/port")
# shellcheck disable=SC2016  # expanded by the inner shell
hidden='for device in /dev/nvidia*; do
  [ ! -c "$device" ] || mount --bind /dev/null "$device"
done
exec "$@"'
for round in $(seq "$rounds"); do
  for program in $programs; do
    printf '%s native ' "$round"
    "$scratch/$program"
    for transport in shm tcp; do
      printf '%s %s ' "$round" "$transport"
      unshare -m bash -c "$hidden" hide "$BUILD/bin/fargpu" run --server "$server" \
        --transport "$transport" -- "$scratch/$program"
    done
  done
done
