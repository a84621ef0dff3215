#!/bin/sh
# Measures the full shapes of FLUX.1-dev and FLUX.2-dev and the kernels on one CUDA device, in at most
# ten minutes: sh benchmarks/gpu.sh. It downloads nothing: the weights are random. Tables and JSON lines go to OUT.
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
  timeout "$2" "$PYTHON" -m benchmarks.gpu --scale "$1" --device "$DEVICE" >"$OUT/$3.txt" ||
    echo "$3 ended early" >>"$OUT/gpu.txt"
  cat "$OUT/$3.txt" >>"$OUT/gpu.txt"
  tail -n 1 "$OUT/$3.txt" >"$OUT/$3.json"
}
if [ "$DEVICE" != cpu ]; then # every case of the interpreter's tests, then times
  KERNELS_DEVICE=$DEVICE timeout 90 "$PYTHON" -m pytest -q tests/kernels/interpreted.py -k "not broken" \
    >"$OUT/kernels-tests.txt" 2>&1 || echo "kernels' tests failed: kernels-tests.txt" >>"$OUT/gpu.txt"
  timeout 90 "$PYTHON" -m benchmarks.kernels --device "$DEVICE" >"$OUT/kernels.txt" ||
    echo "kernels ended early" >>"$OUT/gpu.txt"
  cat "$OUT/kernels.txt" >>"$OUT/gpu.txt"
  tail -n 1 "$OUT/kernels.txt" >"$OUT/kernels.json"
fi
measure "$SCALE" 240 gpu-flux1
measure "$SCALE-flux2" 170 gpu-flux2
