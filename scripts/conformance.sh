#!/usr/bin/env bash
# Runs the official MCP conformance suite against the fixture server in both eras, against our client, and against the
# fixture and third-party servers through Pegboard, in every profile (docs/conformance.md). Every check must pass, including unscored ones.
# Needs npm and Python 3; installs Node 22 and the suite under target/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh
prepare target/conformance
export PATH="$home/node/node_modules/node/bin:$PATH"
conformance=$home/node/node_modules/@modelcontextprotocol/conformance/dist/index.js
fixture=$built/pegboard-testkit

start fixture "$fixture" http 0
wait_for says_address fixture
url=$(address fixture)

# Both revisions and the scenarios of clients are checked concurrently: the suite mostly waits.
check_server() {
    local revision=$1 log=$home/log/server-$1
    timeout 300 node "$conformance" server --url "$url" --requirements "$revision" -o "$home/out-$revision" >"$log" 2>&1 || true
    echo "server, $revision: $(grep -E '^Total: ' "$log" || echo 'Total: the suite did not finish')"
    if ! grep -qE '^Total: [1-9][0-9]* passed, 0 failed' "$log"; then
        grep -E '^✗' "$log" || tail -n 20 "$log"
        return 1
    fi
}
check_client() {
    local name=${1%@*} revision=${1#*@}
    local log=$home/log/client-$name-$revision
    if timeout 120 node "$conformance" client --command "$fixture client" --scenario "$name" --spec-version "$revision" \
        -o "$home/out-client" >"$log" 2>&1 && ! grep -qE '[1-9][0-9]* failed' "$log"; then
        echo "client, $revision: $name passed"
    else
        echo "client, $revision: $name FAILED"
        tail -n 15 "$log"
        return 1
    fi
}
export -f check_server check_client
export home url conformance fixture
{
    printf 'check_server %s\n' 2025-11-25 2026-07-28
    "$fixture" client-scenarios | sed 's/^/check_client /'
} | xargs -P 4 -I {} bash -c '{}' || failed=1

mkdir -p "$home/grid"
cp scripts/conformance/conformance-server.mjs "$home/node/"
rm -rf "$home/grid/state"
before=$(cat docs/conformance.md)
python3 scripts/conformance/grid.py "$conformance" "$pegboard" "$fixture" "$home/python/bin/python" "$home/node" "$home/grid" || failed=1
if [ "$failed" = 0 ] && [ "$before" != "$(cat docs/conformance.md)" ]; then
    echo 'docs/conformance.md is out of date; it has been regenerated, commit it with the change'
    failed=1
fi
exit "$failed"
