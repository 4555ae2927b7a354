#!/usr/bin/env bash
# Runs the official MCP conformance suite against the fixture server in both eras, against our client, and against the
# fixture through Pegboard (docs/conformance.md). Every check must pass, including unscored ones.
# Needs npm and Python 3; installs Node 22 and the suite under target/.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=0.2.0-alpha.12
home=$PWD/target/conformance
mkdir -p "$home"
if [ ! -f "$home/installed-$suite" ]; then
    echo "Installing the conformance suite $suite and Node 22 …"
    (cd "$home" && echo '{"private":true}' >package.json && npm install --silent --no-audit --no-fund \
        node@22 "@modelcontextprotocol/conformance@$suite") && touch "$home/installed-$suite"
fi
export PATH="$home/node_modules/node/bin:$PATH"

cargo build --quiet -p pegboard -p pegboard-testkit
fixture=$PWD/target/debug/pegboard-testkit

"$fixture" http 0 >"$home/address" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 100); do [ -s "$home/address" ] && break; sleep 0.1; done
url=$(cat "$home/address")

failed=0
for revision in 2025-11-25 2026-07-28; do
    log=$home/server-$revision.log
    timeout 300 node "$home/node_modules/@modelcontextprotocol/conformance/dist/index.js" server \
        --url "$url" --requirements "$revision" -o "$home/out-$revision" >"$log" 2>&1 || true
    total=$(grep -E '^Total: ' "$log" || echo 'Total: the suite did not finish')
    echo "server, $revision: $total"
    if ! grep -qE '^Total: [1-9][0-9]* passed, 0 failed' "$log"; then
        failed=1
        grep -E '^✗' "$log" || tail -n 20 "$log"
    fi
done

for scenario in $("$fixture" client-scenarios); do
    name=${scenario%@*} revision=${scenario#*@}
    log=$home/client-$name-$revision.log
    if timeout 120 node "$home/node_modules/@modelcontextprotocol/conformance/dist/index.js" client \
        --command "$fixture client" --scenario "$name" --spec-version "$revision" -o "$home/out-client" >"$log" 2>&1 &&
        ! grep -qE '[1-9][0-9]* failed' "$log"; then
        echo "client, $revision: $name passed"
    else
        echo "client, $revision: $name FAILED"
        failed=1
        tail -n 15 "$log"
    fi
done

mkdir -p "$home/grid"
rm -rf "$home/grid/state"
before=$(cat docs/conformance.md)
python3 scripts/conformance/grid.py "$home/node_modules/@modelcontextprotocol/conformance/dist/index.js" \
    "$PWD/target/debug/pegboard" "$fixture" "$home/grid" || failed=1
if [ "$failed" = 0 ] && [ "$before" != "$(cat docs/conformance.md)" ]; then
    echo 'docs/conformance.md is out of date; it has been regenerated, commit it with the change'
    failed=1
fi
exit "$failed"
