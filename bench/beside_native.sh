#!/usr/bin/env bash
# Runs a program of bench/*.cu natively and through fargpu in turn, on a machine with a GPU. Server
# and client are on this host; the client's GPU is hidden. Prints every line of the program with
# where it ran.
#   bench/beside_native.sh [--build-dir DIR] [--other DIR] [--rounds N] [--programs "NAME…"]
#                          [--arguments "ARGUMENT…"] [--scripts "NAME…"]
#                          [--transports "NAME…"] [--gpu N]
#   --build-dir DIR     the build to measure (build/portable)
#   --other DIR         a second build, measured in turn with the first, as shm-other and tcp-other
#   --rounds N          rounds, in turn (5)
#   --programs NAMES    programs of this folder ("calls graph_launch managed_add")
#   --arguments ARGS    what these programs are given ("")
#   --scripts NAMES     Python programs of tests/apps ("")
#   --transports NAMES  ("shm tcp")
#   --gpu N             the machine's GPU that is used (0)
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

build_dir=$ROOT/build/portable
other=
rounds=5
programs="calls graph_launch managed_add"
arguments=
scripts=
transports="shm tcp"
gpu=0
parse_options build_dir other rounds programs arguments scripts transports gpu -- "$@"
scratch=$(mktemp -d)
daemons=()
# shellcheck disable=SC2329  # called by the trap
finish() {
  [ "${#daemons[@]}" = 0 ] || kill "${daemons[@]}" || true
  wait
  rm -rf "$scratch"
}
trap finish EXIT
commands=()
if [ -n "$programs" ]; then nvcc=$(find_cuda)/bin/nvcc; fi
for program in $programs; do
  "$nvcc" -O2 -o "$scratch/$program" "$ROOT/bench/$program.cu"
  commands+=("$scratch/$program $arguments")
done
for program in $scripts; do commands+=("python3 $ROOT/tests/apps/$program.py"); done

# add_build DIR SUFFIX: a daemon of this build; its ways are called shm-SUFFIX and tcp-SUFFIX.
ways=()
declare -A build_of server_of
add_build() {
  local build port=$scratch/port$2
  build=$(realpath -- "$1")
  [ -x "$build/bin/fargpu" ] || die "$build/bin/fargpu is not there: build it first"
  CUDA_VISIBLE_DEVICES=$gpu "$build/bin/fargpud" --listen 127.0.0.1:0 --port-file "$port" \
    >"$scratch/log$2" 2>&1 &
  daemons+=($!)
  for _ in $(seq 300); do
    [ -s "$port" ] && break
    sleep 0.1
  done
  for transport in $transports; do
    ways+=("$transport$2")
    build_of[$transport$2]=$build
    server_of[$transport$2]=127.0.0.1:$(cut -d' ' -f1 "$port")
  done
}
add_build "$build_dir" ""
if [ -n "$other" ]; then add_build "$other" -other; fi
# shellcheck disable=SC2016  # expanded by the inner shell
hidden='for device in /dev/nvidia*; do
  [ ! -c "$device" ] || mount --bind /dev/null "$device"
done
exec "$@"'
# labelled LABEL COMMAND…: the command's lines, each behind the label.
labelled() {
  local label=$1
  shift
  "$@" | sed "s|^|$label |"
}
for round in $(seq "$rounds"); do
  for command in "${commands[@]}"; do
    name=${command%% *}
    if [ "$name" = python3 ]; then name=${command##* }; fi
    name=$(basename "$name")
    # shellcheck disable=SC2086  # a command with its arguments
    labelled "$round native $name" env CUDA_VISIBLE_DEVICES="$gpu" $command
    for way in "${ways[@]}"; do
      # shellcheck disable=SC2086
      labelled "$round $way $name" unshare -m bash -c "$hidden" hide \
        "${build_of[$way]}/bin/fargpu" run --server "${server_of[$way]}" \
        --transport "${way%%-*}" -- $command
    done
  done
done
