#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a time. Fails on the first finding, whose input remains
# in build/fuzz/findings/.
#
#   tests/fuzz/run.sh SECONDS [TARGET]...
#
# It needs clang and its runtime libraries (on Debian: clang-14, libclang-rt-14-dev).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${1:?usage: tests/fuzz/run.sh SECONDS [TARGET]...}
shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  targets=(safetensors_header checkpoint attention_matrices tokenizer metrics attention)
fi

if [ -z "${CXX-}" ]; then
  for CXX in clang++ clang++-{20,19,18,17,16,15,14}; do
    command -v "$CXX" >/dev/null && break
  done
fi
export CXX
cmake -S tests/fuzz -B build/fuzz -G Ninja >/dev/null
cmake --build build/fuzz --target "${targets[@]}"

mkdir -p build/fuzz/findings
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  options=(-max_total_time="$seconds" -max_len=4096 -timeout=25 -rss_limit_mb=4096 -verbosity=1
    -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$target-")
  if [ -f "tests/fuzz/$target.dict" ]; then options+=(-dict="tests/fuzz/$target.dict"); fi
  echo "== $target"
  # New inputs go to the first folder; the seeds are only read.
  if ! OMP_NUM_THREADS=1 "build/fuzz/$target" "build/fuzz/corpus/$target" "tests/fuzz/seeds/$target" \
      "${options[@]}" >"build/fuzz/$target.log" 2>&1; then
    tail -n 60 "build/fuzz/$target.log"
    echo "fuzz target $target: finding; the input is in build/fuzz/findings/" >&2
    exit 1
  fi
  grep -E 'stat::number_of_executed_units' "build/fuzz/$target.log"
  grep -E 'cov: ' "build/fuzz/$target.log" | tail -n 1
done
