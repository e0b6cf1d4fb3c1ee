# shellcheck shell=bash
# Shared by the scripts in this folder: source it after `set -euo pipefail`. Defines where things
# are and a few verbs; runs nothing.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
DEPS="$ROOT/.deps"
# shellcheck disable=SC2034  # for others
LINT_TOOLS="$DEPS/lint"  # what scripts/setup --lint fetches with pip
CUDA_RELEASE=13.0        # the toolkit whose cuda.h the description is checked against
CUDA_VERSION_MACRO=13000

# Clones in different folders share what ccache knows.
export CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1

say() { printf '%s\n' "==> $*"; }
warn() { printf '%s\n' "warning: $*" >&2; }
die() {
  printf '%s\n' "error: $*" >&2
  exit 1
}

# Prints the comment at the head of the script, without the shebang: what --help shows.
show_help() { awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"; }

# parse_options NAME... -- ARGUMENT...: each NAME is a variable that has its default already, set by
# the option --name VALUE (`_` is `-` there); --help shows the head of the script.
parse_options() {
  local names=() name given
  while [ "$1" != -- ]; do
    names+=("$1")
    shift
  done
  shift
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help)
        show_help
        exit 0
        ;;
    esac
    given=""
    for name in "${names[@]}"; do
      [ "$1" = "--${name//_/-}" ] && given=$name
    done
    [ -n "$given" ] || die "unknown argument '$1'; see $0 --help"
    [ $# -ge 2 ] || die "$1 needs a value"
    printf -v "$given" '%s' "$2"
    shift 2
  done
}

# Seconds since `start_clock`, for progress lines.
start_clock() { CLOCK_START=$SECONDS; }
elapsed() { echo "$((SECONDS - ${CLOCK_START:-0})) s"; }

# Seconds of processor time of all commands of this script that have ended.
processor_seconds() {
  awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print int(($14 + $15) / ticks) }' \
    "/proc/$$/stat"
}

# A compiler process of this project may take 1.5 GiB: not more jobs than memory allows.
job_count() {
  local cores memory_kib by_memory
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  by_memory=$((memory_kib / 1572864))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# True when $1 is the root of a complete toolkit of the right release: headers, nvcc and the static
# runtime.
is_cuda_toolkit() {
  [ -x "$1/bin/nvcc" ] || return 1
  [ -f "$1/include/cuda.h" ] && [ -f "$1/include/cudaProfiler.h" ] || return 1
  grep -qE "^#define CUDA_VERSION +$CUDA_VERSION_MACRO\b" "$1/include/cuda.h" || return 1
  compgen -G "$1/lib*/libcudart_static.a" >/dev/null ||
    [ -f "$1/targets/x86_64-linux/lib/libcudart_static.a" ]
}

# Prints the root of the toolkit to use, or fails. FARGPU_FORCE_LOCAL_CUDA=1 looks only at the
# project-local copy.
find_cuda() {
  local candidate candidates=()
  if [ "${FARGPU_FORCE_LOCAL_CUDA:-0}" != 1 ]; then
    [ -n "${CUDA_HOME:-}" ] && candidates+=("$CUDA_HOME")
    [ -n "${CUDA_PATH:-}" ] && candidates+=("$CUDA_PATH")
    candidates+=(/usr/local/cuda "/usr/local/cuda-$CUDA_RELEASE")
    if command -v nvcc >/dev/null; then
      candidates+=("$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")")
    fi
  fi
  candidates+=("$DEPS/cuda")
  for candidate in "${candidates[@]}"; do
    if is_cuda_toolkit "$candidate"; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# Folder of the toolkit's shared libraries (libcudart, libnvrtc).
cuda_libdir() {
  local folder
  for folder in "$1/lib64" "$1/lib" "$1/targets/x86_64-linux/lib"; do
    if compgen -G "$folder/libcudart.so*" >/dev/null; then
      echo "$folder"
      return 0
    fi
  done
  return 1
}

# configure PRESET [cmake arguments]: configures build/PRESET. CUDA must be set (the toolkit's
# root).
configure() {
  local preset=$1
  shift
  local log="$ROOT/build/$preset.configure.log"
  (cd "$ROOT" && cmake --preset "$preset" -DFARGPU_CUDA_ROOT="$CUDA" "$@" >"$log" 2>&1) || {
    tail -n 40 "$log" >&2
    die "cmake --preset $preset failed; the whole output is in build/$preset.configure.log"
  }
}

# build PRESET [targets]: builds with ninja's progress; a terminal sees one moving line, a log a
# line per 10 %.
build() {
  local preset=$1
  shift
  if [ -t 1 ]; then
    ninja -C "$ROOT/build/$preset" -j "$(job_count)" "$@"
  else
    NINJA_STATUS='[%f/%t %es] ' ninja -C "$ROOT/build/$preset" -j "$(job_count)" "$@" 2>&1 |
      thin_progress
  fi
}

# Keeps about ten progress lines of ninja and everything that is not progress (warnings, errors).
thin_progress() {
  awk '
    /^\[[0-9]+\/[0-9]+ / {
      split(substr($1, 2), count, "/")
      step = int(count[2] / 10) + 1
      if (count[1] - shown >= step || count[1] == count[2]) { print; fflush(); shown = count[1] }
      next
    }
    { print; fflush() }'
}
