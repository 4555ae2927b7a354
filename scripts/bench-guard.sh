#!/usr/bin/env bash
# Counts instructions and allocations per request with callgrind, and fails if they exceed benches/calls.json by 3 %.
#   scripts/bench-guard.sh [SCENARIO…]                   compares
#   scripts/bench-guard.sh --update REASON [SCENARIO…]   records the counts, with the reason for the change
# Needs valgrind; installs it if run by root where there is apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh

if ! command -v valgrind >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        printf 'error: valgrind is not installed\n  help: apt-get install valgrind libc6-dbg\n' >&2
        exit 1
    fi
    echo 'Installing valgrind …'
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends valgrind libc6-dbg >/dev/null
fi
build

# On one processor threads take turns in the same order every time, so that counts differ by less than 1 %.
cpu=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
exec taskset -c "$cpu" "$built/pegboard-testkit" measure-calls "$pegboard" benches/calls.json "$@"
