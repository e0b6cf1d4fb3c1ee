#!/usr/bin/env bash
# One program on two servers beside two processes with one server each, doing the same work; and
# copies between the servers. Two fargpud on this host, with a simulated GPU each: the times are the
# simulator's, only ratios within one run compare.
#   bench/two_servers.sh [--build-dir DIR] [--transport T] [--rounds N]
#   --build-dir DIR  the build to measure (build/release)
#   --transport T    tcp or shm (tcp)
#   --rounds N       rounds, in turn (3)
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

build_dir=$ROOT/build/release
transport=tcp
rounds=3
parse_options build_dir transport rounds -- "$@"
BUILD=$(realpath -- "$build_dir")
[ -x "$BUILD/bin/fargpu" ] || die "$BUILD/bin/fargpu is not there: build it first"
scratch=$(mktemp -d)
daemons=()
# shellcheck disable=SC2329  # called by the trap
finish() {
  for daemon in "${daemons[@]}"; do kill "$daemon" || true; done
  wait
  rm -rf "$scratch"
}
trap finish EXIT
"$(find_cuda)/bin/nvcc" -O2 -o "$scratch/work" "$ROOT/bench/two_servers.cu"
servers=()
for i in 1 2; do
  "$BUILD/bin/fargpud" --driver sim --listen 127.0.0.1:0 --port-file "$scratch/port$i" \
    >"$scratch/log$i" 2>&1 &
  daemons+=($!)
  for _ in $(seq 100); do
    [ -s "$scratch/port$i" ] && break
    sleep 0.1
  done
  servers+=("127.0.0.1:$(cut -d' ' -f1 "$scratch/port$i")")
done
run() { "$BUILD/bin/fargpu" run --server "$1" --transport "$transport" -- "$scratch/work"; }
for round in $(seq "$rounds"); do
  echo "round $round, $transport: one program, two servers"
  run "${servers[0]},${servers[1]}"
  echo "round $round, $transport: two programs, one server each"
  run "${servers[0]}" &
  other=$!
  run "${servers[1]}"
  wait "$other"
done
