#!/usr/bin/env bash
# The rdma transport against perftest in the same VM run (Soft-RoCE, scripts/rdma-vm): ratios; the
# times themselves are the emulator's.
#   bench/rdma.sh [--build-dir DIR] [--rounds N]
#   --build-dir DIR  the build to measure (build/release)
#   --rounds N       rounds of calls, in turn; the first 5 of them with bulk (30)
# Medians are compared. Many rounds, because what else the host does slows down either one by up to
# two, for a second or so.
# Goals: null call <= 1.3 of ib_write_lat's round trip of as many bytes; read and write >= 0.90 of
# ib_read_bw and ib_write_bw (64 KiB). Exit status 1 when a goal is missed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

build_dir=$ROOT/build/release
rounds=30
parse_options build_dir rounds -- "$@"
BUILD=$(realpath -- "$build_dir")
program=$BUILD/bench/rdma_rates
[ -x "$program" ] || die "$program is not there: ninja -C $BUILD rdma_rates"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/guest.sh" <<'EOF'
# Prints "NAME FIGURE" lines. perftest: server and client in turn, the client's report has the
# figure.
perftest() {
  name=$1 column=$2 tool=$3
  shift 3
  $tool -d rxe0 -x 1 "$@" >/dev/null 2>&1 &
  sleep 0.3
  $tool -d rxe0 -x 1 "$@" 10.0.0.1 2>/dev/null |
    awk -v name="$name" -v column="$column" '
      $1 ~ /^[0-9]+$/ && NF >= column {print name, $column}'
  wait
}
for i in $(seq "$1"); do
  perftest ib_write_lat 5 ib_write_lat -s 32 -n 5000
  echo "call $(/t/rdma_rates 10.0.0.1 call)"
  [ "$i" -le 5 ] || continue
  perftest ib_write_bw 4 ib_write_bw -s 65536 -n 1000
  echo "write $(/t/rdma_rates 10.0.0.1 write)"
  perftest ib_read_bw 4 ib_read_bw -s 65536 -n 1000
  echo "read $(/t/rdma_rates 10.0.0.1 read)"
done
EOF
"$ROOT/scripts/rdma-vm" --timeout 280 --add "$program:/t/rdma_rates" \
  --add "$scratch/guest.sh:/t/guest.sh" -- \
  sh /t/guest.sh "$rounds" >"$scratch/figures"
sort -k1,1 -k2,2n "$scratch/figures" | awk '
  {value[$1, ++count[$1]] = $2}
  function median(name,  n) {
    n = count[name]
    if (n == 0) {print "no figures of " name; exit 2}
    return value[name, int((n + 1) / 2)]
  }
  function row(what, ours, theirs, unit, ratio, goal, good) {
    printf "%-28s %9.2f %9.2f %-5s ratio %.2f (goal %s) %s\n",
           what, ours, theirs, unit, ratio, goal, good ? "met" : "MISSED"
    if (!good) missed = 1
  }
  END {
    printf "%-28s %9s %9s\n", "", "fargpu", "perftest"
    theirs = 2 * median("ib_write_lat")   # it reports half of the round trip
    ratio = median("call") / theirs
    row("null call, round trip", median("call"), theirs, "us", ratio, "<= 1.30", ratio <= 1.3)
    ratio = median("write") / median("ib_write_bw")
    row("write, registered", median("write"), median("ib_write_bw"), "MB/s",
        ratio, ">= 0.90", ratio >= 0.9)
    ratio = median("read") / median("ib_read_bw")
    row("read, registered", median("read"), median("ib_read_bw"), "MB/s",
        ratio, ">= 0.90", ratio >= 0.9)
    exit missed
  }'
