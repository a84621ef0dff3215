#!/bin/sh
# Measures the full shapes of FLUX.1-dev and FLUX.2-dev on one CUDA device, in at most nine minutes:
# sh benchmarks/gpu.sh. It downloads nothing: the weights are random. Tables and JSON lines go to OUT.
# A trial of the commands on a CPU: SCALE=tiny sh benchmarks/gpu.sh cpu
set -eu
DEVICE=${1:-cuda}
SCALE=${SCALE:-full}
OUT=${OUT:-benchmarks/results}
PYTHON=${PYTHON:-python}

mkdir -p "$OUT"
: >"$OUT/gpu.txt"
trap 'cat "$OUT/gpu.txt"' EXIT
measure() { # scale, seconds at most, name of the JSON
  timeout "$2" "$PYTHON" -m benchmarks.gpu --scale "$1" --device "$DEVICE" >"$OUT/$3.txt"
  cat "$OUT/$3.txt" >>"$OUT/gpu.txt"
  tail -n 1 "$OUT/$3.txt" >"$OUT/$3.json"
}
measure "$SCALE" 330 gpu-flux1
measure "$SCALE-flux2" 210 gpu-flux2
