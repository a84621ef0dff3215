#!/bin/sh
# The whole training on one CUDA device: sh training/gpu.sh ICONS_JSON [DEVICE]
# A trial of the commands: SCALE=0.01 CHUNKS=1 PICTURES=40 POOL=40 BATCH=8 sh training/gpu.sh ICONS cpu
set -eu
ICONS=$1
DEVICE=${2:-cuda}
SCALE=${SCALE:-1}
RUNS=${RUNS:-training/runs}
OUT=${OUT:-assets/flux-emoji}
PYTHON=${PYTHON:-python}
BATCH=${BATCH:-256}
POOL=${POOL:-2000}
PICTURES=${PICTURES:-1000}

minutes() { awk "BEGIN { print $1 * $SCALE }"; }
run() { "$PYTHON" -m "$@" --runs "$RUNS"; }
latents() { # stage, chunks
  run training.latents --icons "$ICONS" --stage "$1" --chunks "$2" --pictures "$PICTURES" \
    --device "$DEVICE"
}
train() { # stage, start, minutes, flat
  run training.transformer --stage "$1" --start "$2" --minutes "$(minutes "$3")" --flat "$4" \
    --batch "$BATCH" --device "$DEVICE"
}

run training.text --minutes "$(minutes 0.5)"
run training.autoencoder --icons "$ICONS" --minutes "$(minutes 2)" --pool "$POOL" --device "$DEVICE"
latents half "${CHUNKS:-12}"
train half "" 1.5 0.9
latents full "${CHUNKS:-16}"
train full half 1.5 0.9
latents buckets "${CHUNKS:-26}"
train buckets full 1.5 0.4
run training.distil --start buckets --minutes "$(minutes 1)" --batch "$BATCH" --device "$DEVICE"
run training.autoencoder --icons "$ICONS" --phase decoder --minutes "$(minutes 1)" --pool "$POOL" \
  --device "$DEVICE"
run training.export --out "$OUT"
