#!/bin/sh
# Trains the shipped model on, on one CUDA device, in nine minutes: sh training/gpu.sh [DEVICE]
# It needs training/runs/icons.json (or ICONS) and leaves the new model in OUT, files under 16 MiB.
# A trial of the commands on a CPU:
#   SCALE=0.01 CHUNKS=1 PICTURES=40 POOL=40 BATCH=8 DRAWERS=1 OUT=/tmp/model sh training/gpu.sh cpu
set -eu
DEVICE=${1:-cuda}
SCALE=${SCALE:-1}
RUNS=${RUNS:-training/runs/gpu}
ICONS=${ICONS:-training/runs/icons.json}
FROM=${FROM:-assets/flux-emoji}
OUT=${OUT:-assets/flux-emoji}
PYTHON=${PYTHON:-python}
BATCH=${BATCH:-384}
POOL=${POOL:-4000}
CHUNKS=${CHUNKS:-14} # a drawer
PICTURES=${PICTURES:-1000}
DRAWERS=${DRAWERS:-6} # processes that draw and encode pictures

minutes() { awk "BEGIN { print $1 * $SCALE }"; }
run() { "$PYTHON" -m "$@" --runs "$RUNS"; }
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"

run training.text --minutes "$(minutes 1.8)" &
TEXT=$!
run training.autoencoder --icons "$ICONS" --phase tune --from "$FROM" --minutes "$(minutes 2)" \
  --batch 16 --pool "$POOL" --device "$DEVICE"
wait "$TEXT"
for drawer in $(seq "$DRAWERS"); do
  run training.latents --icons "$ICONS" --stage buckets --chunks "$CHUNKS" \
    --first $(((drawer - 1) * CHUNKS)) --pictures "$PICTURES" --device "$DEVICE" &
done
wait
run training.transformer --stage buckets --from "$FROM" --minutes "$(minutes 3.5)" --flat 0.5 \
  --batch "$BATCH" --device "$DEVICE"
run training.distil --start buckets --minutes "$(minutes 1.2)" --batch "$BATCH" --device "$DEVICE"
run training.autoencoder --icons "$ICONS" --phase decoder --start tune --flat 0.1 \
  --muon-rate 3e-4 --adam-rate 3e-4 --minutes "$(minutes 1)" --batch 16 --pool "$POOL" \
  --device "$DEVICE"
run training.export --out "$OUT"
