#!/bin/sh
# Measures FLUX.1-dev's full shape on one CUDA device, in at most eight minutes: sh benchmarks/gpu.sh
# It downloads nothing: the weights are random. Table and JSON line go to OUT.
# A trial of the commands on a CPU: SCALE=tiny sh benchmarks/gpu.sh cpu
set -eu
DEVICE=${1:-cuda}
SCALE=${SCALE:-full}
OUT=${OUT:-benchmarks/results}
PYTHON=${PYTHON:-python}

mkdir -p "$OUT"
trap 'cat "$OUT/gpu.txt"' EXIT
timeout 480 "$PYTHON" -m benchmarks.gpu --scale "$SCALE" --device "$DEVICE" >"$OUT/gpu.txt"
tail -n 1 "$OUT/gpu.txt" >"$OUT/gpu.json"
