#!/usr/bin/env bash
# Runs our client against third-party servers, and third-party clients against our server: both eras, every transport.
# Needs Node 20 with npm, and Python 3.10; installs the peers under target/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh
prepare target/peers
# Node resolves packages from the directory of the script.
cp scripts/peers/*.mjs "$home/node/"
everything=$home/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js
supergateway=$home/node/node_modules/supergateway/dist/index.js
python=$home/python/bin/python

fixture=$built/pegboard-testkit

# Expected output of our client against server-everything over any transport.
everything_calls=(
    --call echo '{"message": "Grüße"}'
    --call trigger-long-running-operation '{"duration": 0.3, "steps": 3}'
)
everything_seen=(
    'connected: session 2025-11-25, server mcp-servers/everything,'
    'echo: {"content":[{"type":"text","text":"Echo: Grüße"}]}'
    'notifications/progress {"progress":1,"total":3,' 'notifications/progress {"progress":2,"total":3,'
    'notifications/progress {"progress":3,"total":3,' 'Long running operation completed.'
)
asked_calls=("${everything_calls[@]}" --call trigger-elicitation-request '{}')
asked_seen=("${everything_seen[@]}" 'User provided the requested information!')
read -r http_port sse_port ws_port <<<"$(free_ports 3)"
start everything-http env PORT="$http_port" node "$everything" streamableHttp
start everything-sse env PORT="$sse_port" node "$everything" sse
start supergateway node "$supergateway" --stdio "node $everything stdio" --outputTransport ws --port "$ws_port"
start python-http "$python" scripts/peers/server.py http
start fixture-http "$fixture" http 0

peer 'our client, server-everything over stdio' "${asked_seen[@]}" -- \
    "$fixture" client-stdio "${asked_calls[@]}" node "$everything" stdio
wait_for listens "$http_port"
peer 'our client, server-everything over streamable HTTP' "${asked_seen[@]}" -- \
    "$fixture" client "${asked_calls[@]}" "http://127.0.0.1:$http_port/mcp"
wait_for listens "$sse_port"
peer 'our client, server-everything over HTTP+SSE' "${asked_seen[@]}" -- \
    "$fixture" client-sse "${asked_calls[@]}" "http://127.0.0.1:$sse_port/sse"
wait_for listens "$ws_port"
# supergateway rewrites the ids of responses to server requests, so elicitation does not work through it.
peer 'our client, server-everything over WebSocket (supergateway)' "${everything_seen[@]}" -- \
    "$fixture" client-ws "${everything_calls[@]}" "ws://127.0.0.1:$ws_port/message"

# Expected output of our client against our server on the Python SDK.
python_calls=(--call echo '{"message": "hello"}' --call count '{}' --call greet '{}')
python_seen=(
    'server python-peer, 6 tools' '"Echo: hello"'
    '"progress":1,"total":3' '"progress":2,"total":3' '"progress":3,"total":3' 'Counted to three.'
    'Hello, test!'
)
wait_for says_address python-http
python_url=$(address python-http)
for era in stateless session; do
    # Era by negotiation (stateless), or as specified.
    case $era in
    stateless) revision=2026-07-28 forced=() ;;
    session) revision=2025-11-25 forced=(--era session) ;;
    esac
    seen=("connected: $era $revision, " "${python_seen[@]}")
    peer "our client, Python server over stdio, $era" "${seen[@]}" -- \
        "$fixture" client-stdio "${forced[@]}" "${python_calls[@]}" "$python" scripts/peers/server.py stdio
    peer "our client, Python server over streamable HTTP, $era" "${seen[@]}" -- \
        "$fixture" client "${forced[@]}" "${python_calls[@]}" "$python_url"
done

wait_for says_address fixture-http
fixture_url=$(address fixture-http)
peer 'our server, Python client' 'ok stdio, session' 'ok stdio, stateless' 'ok http, session' 'ok http, stateless' \
    'ok sse, session: an error' -- "$python" scripts/peers/client.py "$fixture" "$fixture_url"
peer 'our server, TypeScript SDK v1 client' 'ok stdio:' 'ok http:' 'ok sse:' 'ok websocket: an error' -- \
    node "$home/node/client-v1.mjs" "$fixture" "$fixture_url"
peer 'our server, TypeScript SDK v2 client' 'ok stdio, 2025-11-25' 'ok stdio, 2026-07-28' 'ok http, 2025-11-25' \
    'ok http, 2026-07-28: an error' -- node "$home/node/client-v2.mjs" "$fixture" "$fixture_url"
exit "$failed"
