#!/usr/bin/env bash
# Makes a corpus for each target from the recordings: single lines and short runs of them.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p corpus/wire corpus/fold corpus/translate
for recording in ../testdata/recordings/*.jsonl; do
    name=$(basename "$recording" .jsonl)
    sed -n 's/^[CA]->[CA] //p' "$recording" | awk 'length < 4000' | split -l 1 -a 4 - "corpus/wire/$name."
    awk 'length < 4000' "$recording" | split -l 20 -a 4 - "corpus/fold/$name."
    awk 'length < 4000' "$recording" | split -l 30 -a 4 - "corpus/translate/$name."
done
printf '%s files for wire, %s for fold\n' "$(ls corpus/wire | wc -l)" "$(ls corpus/fold | wc -l)"
