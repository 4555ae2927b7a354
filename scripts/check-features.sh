#!/usr/bin/env bash
# Checks that the library compiles with few features, and that each set stays within its number of packages.
set -euo pipefail
cd "$(dirname "$0")/.."

check() {
    local features=$1 most=$2 count
    cargo check --quiet -p pegboard --lib --no-default-features --features "$features"
    count=$(cargo tree -p pegboard --no-default-features --features "$features" -e normal --prefix none |
        sed 's/ (.*//' | sort -u | wc -l)
    printf '%-10s %4s packages (at most %s)\n' "${features:-none}" "$count" "$most"
    [ "$count" -le "$most" ] || { echo "too many packages with the features '$features'" >&2; exit 1; }
}

check "" 87
check runtime 95
check gateway 99
check http 141
check app 233
check gateway,mcp 190
# Each kind of provider compiles without the others.
for kind in agents openapi rest; do
    cargo check --quiet -p pegboard-providers --no-default-features --features "$kind"
done
# Each half of HTTP compiles without the other.
for half in http-client http-server; do
    cargo check --quiet -p pegboard-wire --no-default-features --features "$half"
done
