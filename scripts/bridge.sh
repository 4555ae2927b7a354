#!/usr/bin/env bash
# Runs third-party clients of both eras through Pegboard against servers of both eras: lists, calls, progress, prompts,
# resources and their change notifications, errors, elicitation and sampling.
# Needs Node 20 with npm, and Python 3.10; installs Node 22 and the clients under target/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh
prepare target/bridge
export PATH="$home/node/node_modules/node/bin:$PATH"
cp scripts/bridge/client.mjs "$home/node/"
packages=$home/node/node_modules/@modelcontextprotocol
python=$home/python/bin/python
# The plan of each era: what a server has in one era only is used in this one.
for era in session stateless; do
    python3 -c 'import json, sys
plan = json.load(sys.stdin)
is_kept = lambda step: step.get("only", sys.argv[1]) == sys.argv[1]
json.dump({name: steps if isinstance(steps, str) else [*filter(is_kept, steps)] for name, steps in plan.items()}, sys.stdout)
' "$era" <scripts/bridge/plan.json >"$home/plan-$era.json"
done

export PEGBOARD_STATE=$home/state
rm -rf "$home/state"

# A session server and a stateless server over stdio, and the fixture in each era.
for era in session stateless; do
    start "fixture-$era" "$built/pegboard-testkit" http 0 --era "$era"
    wait_for says_address "fixture-$era"
done
profile() { echo "\"$1\": {\"expose\": \"flat\", \"transparent\": true, \"toolboxes\": [\"$1\"]}"; }
toolbox() { echo "\"$1\": {\"description\": \"$1\", \"mcpServers\": {\"${1%-*}\": $2}}"; }
cat >"$home/pegboard.json" <<END
{
    "pegboard": 1,
    "toolboxes": {
        $(toolbox everything "{\"command\": \"node\", \"args\": [\"$packages/server-everything/dist/index.js\", \"stdio\"]}"),
        $(toolbox python "{\"command\": \"$python\", \"args\": [\"$PWD/scripts/peers/server.py\", \"stdio\"]}"),
        $(toolbox fixture-session "{\"url\": \"$(address fixture-session)\"}"),
        $(toolbox fixture-stateless "{\"url\": \"$(address fixture-stateless)\"}")
    },
    "profiles": {
        $(profile everything), $(profile python), $(profile fixture-session), $(profile fixture-stateless)
    }
}
END

start gateway "$pegboard" serve "$home/pegboard.json" --http 127.0.0.1:0 --open --no-watch
says_ready() { grep -q '^Ready ' "$home/log/gateway"; }
wait_for says_ready
url=$(grep -om1 'http://[^ ]*/mcp' "$home/log/gateway")
stdio=("$pegboard" "$home/pegboard.json")

# seen ERA: appends the final lines that a client prints for each server.
seen() {
    for server in everything python fixture-session fixture-stateless; do
        expected+=("ok $server, $1: lists" "ok $server, $1: an error")
    done
}
# client NAME ERA COMMAND…: runs a client over HTTP and over stdio.
client() {
    local name=$1 era=$2 expected=()
    shift 2
    seen "$era"
    peer "$name over streamable HTTP, $era" "${expected[@]}" -- "$@" "$home/plan-$era.json" "$era" "$url"
    peer "$name over stdio, $era" "${expected[@]}" -- "$@" "$home/plan-$era.json" "$era" "${stdio[@]}"
}

client 'the Python SDK' session "$python" scripts/bridge/client.py
client 'the Python SDK' stateless "$python" scripts/bridge/client.py
client 'the TypeScript SDK v1' session node "$home/node/client.mjs" v1
client 'the TypeScript SDK v2' session node "$home/node/client.mjs" v2
client 'the TypeScript SDK v2' stateless node "$home/node/client.mjs" v2
client 'the Rust SDK' session "$built/examples/rmcp_client"
client 'the Rust SDK' stateless "$built/examples/rmcp_client"

# The Inspector does not answer input requests: it lists, calls, gets and reads.
inspect() {
    peer "the Inspector, $1, $era" "$3" -- "${inspector[@]}" "$url/$2" --transport http --protocol-era "$era" "${@:4}"
}
# It exits with 5 after a tool error.
inspector=(bash -c '"$@" || [ $? = 5 ]' inspector node "$packages/inspector/clients/launcher/build/index.js" --cli)
for era in legacy modern; do
    inspect 'a list' everything '"trigger-sampling-request"' --method tools/list
    inspect 'a tool' python 'Echo: hello' --method tools/call --tool-name echo --tool-arg message=hello
    inspect "a tool's error" fixture-stateless 'intentionally returns an error' --method tools/call \
        --tool-name test_error_handling
    inspect 'a prompt' everything 'a simple prompt without arguments' --method prompts/get --prompt-name simple-prompt
    inspect 'a resource' fixture-session 'content of the static text resource' --method resources/read --uri test://static-text
done
exit "$failed"
