#!/usr/bin/env bash
# Bash: awk computes, because bash knows whole numbers only.
set -euo pipefail
for argument in "$@"; do
  case $argument in
    --lr=*) lr=${argument#*=} ;;
    --momentum=*) momentum=${argument#*=} ;;
  esac
done
state=$AUTOML_CHECKPOINT_DIR/state
epoch=0 x=5 velocity=0
if [ -n "${AUTOML_RESUME:-}" ] && [ -f "$state" ]; then read -r epoch x velocity <"$state"; fi
while ((epoch < 27)) && [ ! -e "$AUTOML_STOP" ]; do
  epoch=$((epoch + 1))
  read -r x velocity loss < <(
    awk "BEGIN { v = $momentum * $velocity - $lr * $x; x = $x + v
                 printf \"%.9g %.9g %.9g\", x, v, x * x; exit }"; echo
  )
  echo "$epoch $x $velocity" >"$state.new" && mv "$state.new" "$state"
  echo "{\"step\": $epoch, \"loss\": $loss}" >>"$AUTOML_REPORTS"
done
