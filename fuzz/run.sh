#!/usr/bin/env bash
# Runs each fuzz target with new inputs for a while: fuzz/run.sh [SECONDS]. Needs a nightly compiler and cargo-fuzz.
#
# It starts from the recordings and from testdata/fuzz, and keeps in testdata/fuzz a small set of inputs that reach all code
# that was reached, which `cargo test` runs. An input that fails is printed and written to fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
max_len=4096

for target in wire fold translate; do
    kept=../testdata/fuzz/$target
    seeds=$(mktemp -d)
    mkdir -p "$kept" "corpus/$target"
    for recording in ../testdata/recordings/*.jsonl; do
        name=$(basename "$recording" .jsonl)
        case $target in
        # The first bytes choose the sizes of reads, or the dialects.
        wire) sed -n 's/^[CA]->[CA] /~~/p' "$recording" | awk 'length < 4000' | split -l 1 -a 4 - "$seeds/$name." ;;
        *) awk 'length < 2000' "$recording" | split -l 5 -a 4 - "$seeds/$name." ;;
        esac
    done
    cargo +nightly fuzz run "$target" "corpus/$target" "$kept" "$seeds" -- \
        -max_total_time="$seconds" -max_len=$max_len -rss_limit_mb=4096 -print_final_stats=1
    smallest=$(mktemp -d)
    cargo +nightly fuzz run "$target" "$smallest" "corpus/$target" "$kept" -- -set_cover_merge=1 -max_len=1024
    rm -r "$kept" && mv "$smallest" "$kept"
    rm -r "$seeds"
    printf '%s: %s inputs kept\n' "$target" "$(find "$kept" -type f | wc -l)"
done
