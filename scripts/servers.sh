#!/usr/bin/env bash
# Runs third-party servers through Pegboard: started from one configuration, called by their flat names over stdio and
# HTTP, and stopped with their whole process tree.
# Needs Node 20 with npm, and Python 3.10; installs the servers under target/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh
prepare target/servers

export PEGBOARD_STATE=$home/state
rm -rf "$home/state" "$home/files" "$home/repository" "$home/memory.json"

mkdir -p "$home/files"
echo 'a line of a file' >"$home/files/a.txt"
git init --quiet "$home/repository"
git -C "$home/repository" -c user.name=Ann -c user.email=ann@example.org commit --quiet --allow-empty -m 'plant a tree'

cat >"$home/pegboard.json" <<END
{
    // Five servers of others, and one that does not start.
    "mcpServers": {
        "everything": {"command": "node", "args": ["$home/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"]},
        "filesystem": {"command": "node", "args": ["$home/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "$home/files"]},
        "memory": {
            "command": "node", "args": ["$home/node/node_modules/@modelcontextprotocol/server-memory/dist/index.js"],
            "env": {"MEMORY_FILE_PATH": "$home/memory.json"}
        },
        "time": {"command": "$home/python/bin/mcp-server-time"},
        "git": {"command": "$home/python/bin/mcp-server-git"},
        "broken": {"command": "node", "args": ["-e", "console.error('there is no key'); process.exit(4)"]}
    }
}
END

calls=(
    --call everything__echo '{"message": "Grüße"}'
    --call everything__trigger-long-running-operation '{"duration": 0.3, "steps": 3}'
    --call filesystem__read_text_file "{\"path\": \"$home/files/a.txt\"}"
    --call filesystem__read_text_file '{"path": "/etc/hostname"}'
    --call memory__create_entities '{"entities": [{"name": "Ann", "entityType": "person", "observations": ["likes tea"]}]}'
    --call memory__search_nodes '{"query": "tea"}'
    --call time__get_current_time '{"timezone": "UTC"}'
    --call git__git_log "{\"repo_path\": \"$home/repository\"}"
    --call git__git_status '{"repo_path": 5}'
)
seen=(
    'everything__echo: {"content":[{"type":"text","text":"Echo: Grüße"}]'
    '"progress":1,"total":3,' '"progress":2,"total":3,' '"progress":3,"total":3,' 'Long running operation completed.'
    'a line of a file' 'Access denied' 'Ann' 'likes tea' 'is_dst' 'plant a tree' 'git__git_status: {' 'Error executing tool'
)
serve=("$pegboard" serve "$home/pegboard.json")

for era in session stateless; do
    peer "servers through Pegboard over stdio, $era" "connected: $era" "${seen[@]}" -- \
        "$built/pegboard-testkit" client-stdio --era "$era" "${calls[@]}" "${serve[@]}" --stdio --no-daemon --profile flat
done

start pegboard-http "${serve[@]}" --http 127.0.0.1:0 --open
says_ready() { grep -q '^Ready ' "$home/log/pegboard-http"; }
wait_for says_ready
url=$(grep -om1 'http://[^ ]*/mcp' "$home/log/pegboard-http")
gateway=${started[-1]}
peer 'servers through Pegboard over streamable HTTP' 'connected: stateless' "${seen[@]}" -- \
    "$built/pegboard-testkit" client "${calls[@]}" "$url/flat"
peer 'servers through Pegboard over HTTP+SSE' "${seen[@]}" -- \
    "$built/pegboard-testkit" client-sse "${calls[@]}" "$url/flat/sse"
peer 'servers through Pegboard over WebSocket' "${seen[@]}" -- \
    "$built/pegboard-testkit" client-ws "${calls[@]}" "ws://${url#http://}/flat/ws"
peer 'a toolbox opened and its tool used' 'servers_failed' 'Echo: hello' -- \
    "$built/pegboard-testkit" client --era session --call open_toolbox '{"toolbox": "default"}' \
    --call use_tool '{"tool": {"toolbox": "default", "server": "everything", "name": "echo"}, "arguments": {"message": "hello"}}' \
    "$url"

# An unmodified workbench configuration, for third-party clients.
cat >"$home/workbench-config.json" <<END
{
    "toolboxes": {
        "dev": {
            "description": "Files and memory",
            "mcpServers": {
                "filesystem": {
                    "command": "node",
                    "args": ["$home/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "\${SHOWN:-$home/files}"],
                    "toolFilters": ["read_text_file", "list_directory"]
                },
                "memory": {
                    "command": "node",
                    "args": ["$home/node/node_modules/@modelcontextprotocol/server-memory/dist/index.js"],
                    "env": {"MEMORY_FILE_PATH": "$home/memory.json"},
                    "toolFilters": ["*"],
                    "transport": "stdio"
                }
            }
        }
    }
}
END
export WORKBENCH_CONFIG=$home/workbench-config.json
inspector=(node "$home/node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js" --cli)
peer 'a workbench configuration, the Inspector lists' '"open_toolbox"' '"use_tool"' -- \
    "${inspector[@]}" "$pegboard" serve "$WORKBENCH_CONFIG" --stdio --no-daemon --method tools/list
peer 'a workbench configuration, the Inspector opens a toolbox' 'servers_connected' 'read_text_file' -- \
    "${inspector[@]}" "$pegboard" serve "$WORKBENCH_CONFIG" --stdio --no-daemon --method tools/call --tool-name open_toolbox --tool-arg toolbox=dev
peer 'a workbench configuration, the Python client' '- dev (2 servers: filesystem, memory)' \
    '2 servers: read_text_file list_directory create_entities' 'read: a line of a file' -- \
    "$home/python/bin/python" scripts/peers/workbench.py "$pegboard" "$home/files/a.txt"

# First use by a person with two clients that have these servers.
user=$home/user
rm -rf "$user" "$home/before"
mkdir -p "$user/project" "$user/.cursor" "$user/.mcp-inspector" "$home/before"
cat >"$user/.cursor/mcp.json" <<END
{
    // what I use every day
    "mcpServers": {
        "files": {"command": "node", "args": ["$home/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "$home/files"]},
        "time": {"command": "$home/python/bin/mcp-server-time", "env": {"HOME_OF_IT": "\${userHome}"}},
    },
}
END
cat >"$user/.mcp-inspector/mcp.json" <<END
{"mcpServers": {"clock": {"type": "stdio", "command": "$home/python/bin/mcp-server-time"}}}
END
cp -r "$user/.cursor" "$user/.mcp-inspector" "$home/before"
as_user=(env -i -C "$user/project" HOME="$user" PATH="$(dirname "$(command -v node)"):/usr/bin:/bin")
peer 'clients are taken over' 'cursor' 'files' 'inspector' 'clock' 'Cursor now uses Pegboard instead of files, time' -- \
    "${as_user[@]}" "$pegboard" import --take-over
peer 'what they had is listed' 'read_text_file' 'get_current_time' -- "${as_user[@]}" "$pegboard" ls -o text
peer 'what they had is called' 'a line of a file' -- \
    "${as_user[@]}" "$pegboard" call files/read_text_file "path=$home/files/a.txt"
peer 'a client finds it through us' '"open_toolbox"' -- \
    "${as_user[@]}" "${inspector[@]}" --config "$user/.mcp-inspector/mcp.json" --server pegboard --method tools/list
peer 'all that it names is well' '0 problems' -- "${as_user[@]}" "$pegboard" doctor -o text
peer 'the files of clients come back' 'Restored' 'Restored' -- "${as_user[@]}" "$pegboard" restore --all
peer 'they are as they were' -- diff -r "$user/.cursor" "$home/before/.cursor"
peer 'they are as they were, too' -- diff -r "$user/.mcp-inspector" "$home/before/.mcp-inspector"

# SIGKILL leaves no server process behind.
left() { pgrep -f "$home/(node|python)/" || true; }
[ -n "$(left)" ] || { echo 'peer: no server ran'; exit 1; }
kill -KILL "$gateway"
wait "$gateway" 2>/dev/null || true
gone() { [ -z "$(left)" ]; }
wait_for gone
echo 'peer: nothing is left after a kill passed'
exit "$failed"
