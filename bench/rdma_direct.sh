#!/usr/bin/env bash
# Bulk over rdma with the simulated GPU in one VM run (Soft-RoCE, scripts/rdma-vm): pinned memory
# directly to and from device memory against the same by way of staging, for many sizes; and
# pageable memory through registered slots against frames. Ratios; the times are the emulator's.
#   bench/rdma_direct.sh [--build-dir DIR] [--seconds S] [--rounds N]
#   --build-dir DIR  the build to measure (build/release)
#   --seconds S      for each figure (0.2)
#   --rounds N       of each, in turn; medians are compared (3)
# The size from which on direct copies are not slower, both ways, is where FARGPU_GPUDIRECT_FROM
# belongs on this "hardware".
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

build_dir=$ROOT/build/release
seconds=0.2
rounds=3
parse_options build_dir seconds rounds -- "$@"
BUILD=$(realpath -- "$build_dir")
for file in bin/{bandwidth,fargpu,fargpud,fargpu-worker} \
  lib/fargpu/libcuda.so.1 lib/libfargpu-sim.so; do
  [ -e "$BUILD/$file" ] || die "$BUILD/$file is not there: build it first"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/guest.sh" <<'EOF2'
bin=$1/bin
seconds=$2
# measure NAME KIND VARIABLE...: "NAME WHAT BYTES US" lines; the variables are the daemon's and the
# program's.
measure() {
  name=$1 kind=$2
  shift 2
  rm -f /tmp/port
  env "$@" $bin/fargpud --driver sim --listen 10.0.0.1:0 --port-file /tmp/port \
    >/tmp/$name.log 2>&1 &
  daemon=$!
  for i in $(seq 100); do [ -s /tmp/port ] && break; sleep 0.1; done
  # One filter finds both directions.
  server=10.0.0.1:$(cut -d' ' -f1 /tmp/port)
  env "$@" timeout 120 $bin/fargpu run --server "$server" --transport rdma -- \
    /t/bandwidth --largest 16 --seconds "$seconds" --only "$kind H2D" --json /tmp/figures \
    >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
  figure='.*"name": "\([a-z]*\) \([HD2]*\) .*"bytes": \([0-9]*\), "us": \([0-9.]*\).*'
  sed -n "s/$figure/$name \\1-\\2 \\3 \\4/p" /tmp/figures
  kill $daemon
}
for i in $(seq "$3"); do
  measure direct pinned FARGPU_GPUDIRECT_FROM=1
  measure staged pinned FARGPU_GPUDIRECT=0
  measure slots pageable FARGPU_GPUDIRECT=0
  measure frames pageable FARGPU_ZERO_COPY=0
done
EOF2
"$ROOT/scripts/rdma-vm" --timeout 600 --add "$BUILD/bin/bandwidth:/t/bandwidth" \
  --add "$BUILD/bin" --add "$BUILD/lib" --add "$scratch/guest.sh:/t/guest.sh" -- \
  sh /t/guest.sh "$BUILD" "$seconds" "$rounds" >"$scratch/figures"
sort -k1,1 -k2,2 -k3,3n -k4,4n "$scratch/figures" | awk '
  {value[$1, $2, $3, ++count[$1, $2, $3]] = $4; if (!seen[$2, $3]++) order[++rows] = $2 SUBSEP $3}
  function median(name, what, bytes,  n) {
    n = count[name, what, bytes]
    return n == 0 ? 0 : value[name, what, bytes, int((n + 1) / 2)]
  }
  END {
    for (i = 1; i <= rows; ++i) {
      split(order[i], key, SUBSEP)
      if (key[2] < 65536) continue
      pinned = key[1] ~ /^pinned/
      ours = median(pinned ? "direct" : "slots", key[1], key[2])
      other = median(pinned ? "staged" : "frames", key[1], key[2])
      if (ours == 0 || other == 0) {print "no figures of " key[1]; exit 2}
      printf "%-14s %10d %8s %9.0f us %8s %9.0f us  ratio %.2f\n", key[1], key[2],
             pinned ? "direct" : "slots", ours, pinned ? "staged" : "frames", other, ours / other
    }
  }' | sort -k1,1 -k2,2n
