#!/usr/bin/env bash
# Runs the first day of a user in a clean home: four clients' files with servers from npm and PyPI, import, a cold and a
# warm `ls`, a broken cache, take-over, all four clients at once, and restore. `scripts/first-day.sh BINARY` runs another
# binary than the release. Needs Node 20 with npm, and Python 3.11; installs uv under target/, and the servers in the clean home.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/parts.sh
if [ $# -gt 0 ]; then
    pegboard=$(realpath "$1")
    root=$PWD/target/first-day
else
    prepare target/first-day
    root=$home
fi
uv=$root/uv
if [ ! -x "$uv/bin/uvx" ]; then
    python3 -m venv --clear "$uv"
    "$uv/bin/pip" install --quiet --disable-pip-version-check uv
fi

rm -rf "$root/user"
mkdir -p "$root/user/project"
export HOME=$root/user
export PATH=$uv/bin:$PATH NO_COLOR=1
unset XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME PEGBOARD_STATE CLAUDE_CONFIG_DIR
export npm_config_cache=$HOME/.npm npm_config_update_notifier=false npm_config_fund=false UV_CACHE_DIR=$HOME/.cache/uv
log=$HOME/log
scripts=$PWD/scripts
cd "$HOME/project"

# step NAME: begins a step.
step() { printf '  %-60s %4s s\n' "$1" "$SECONDS"; }
# fail REASON: ends the script with the output of the last command.
fail() {
    printf 'FAILED: %s\n' "$1" >&2
    cat "$log" >&2
    exit 1
}
# check STATUS COMMAND...: runs a command of Pegboard, which must exit with this status. Its output is in $log.
check() {
    local expected=$1 status=0
    shift
    "$pegboard" "$@" >"$log" 2>&1 </dev/null || status=$?
    [ "$status" = "$expected" ] || fail "pegboard $*: exit $status, not $expected"
}
# shows TEXT: the last output contains a text. lacks TEXT: it does not.
shows() { grep -qF -- "$1" "$log" || fail "no '$1'"; }
lacks() { ! grep -qF -- "$1" "$log" || fail "'$1'"; }

cursor=$HOME/.cursor/mcp.json
codex=$HOME/.codex/config.toml
claude=$HOME/.config/Claude/claude_desktop_config.json
vscode=$HOME/.config/Code/User/mcp.json
files=("$cursor" "$codex" "$claude" "$vscode")
for file in "${files[@]}"; do mkdir -p "$(dirname "$file")"; done

cat >"$cursor" <<'END'
{
  // every day
  "mcpServers": {
    "everything": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything@2026.8.31", "stdio"]},
    "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "."]},
    "tracker": {"url": "https://tracker.example.com/mcp"}
  }
}
END
cat >"$codex" <<'END'
model = "o5"   # the best

[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time==2026.10.19"]
END
cat >"$claude" <<'END'
{"mcpServers": {"memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"]}}}
END
cat >"$vscode" <<'END'
{
	"servers": {
		"everything": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything@2026.8.31", "stdio"]},
		"keyed": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"], "env": {"KEY": "${input:key}"}},
		"here": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "${workspaceFolder}"]}
	},
	"inputs": [{"id": "key", "type": "promptString", "description": "Key of the service", "password": true}]
}
END
for file in "${files[@]}"; do cp "$file" "$file.before"; done

step 'import: into the configuration of the user'
check 0 import
shows "$HOME/.config/pegboard/pegboard.yaml"
shows 'same as everything'
shows 'needs: PEGBOARD_INPUT_KEY'
shows 'the file belongs to no project'
[ ! -e pegboard.yaml ] || fail 'a file in the project'
# The login of the tracker is not part of this day.
check 0 disable --user tracker

step 'ls, cold: packages are installed'
check 0 ls
for server in everything files memory time; do
    grep -Eq "✓ $server +stdio +ready" "$log" || fail "$server is not ready"
done
shows 'get_current_time'
shows 'disabled'

step 'call: what a server needs is said there, and nowhere else'
check 5 call keyed/read_graph
shows 'export PEGBOARD_INPUT_KEY='
check 5 call tracker/search
shows 'enable it with pegboard enable tracker'
check 0 call time/get_current_time timezone=UTC
lacks 'PEGBOARD_INPUT_KEY'

step 'files: programs of the user run in the home directory'
cd /
check 0 call files/list_allowed_directories
shows "$HOME"
cd "$HOME/project"

step 'ls, warm'
check 0 ls
lacks 'failed'

step 'a broken cache of npx is recognised, and the command mends it'
package=$(find "$npm_config_cache/_npx" -path '*/server-everything/dist/index.js' | head -1)
rm -rf "${package%/@modelcontextprotocol/*}/@modelcontextprotocol/sdk/dist"
check 0 ls everything
shows 'An earlier installation was interrupted'
mend=$(grep -o 'rm -rf [^ ]*' "$log" | head -1)
[ "${mend#rm -rf "$npm_config_cache"/_npx/}" != "$mend" ] || fail "the command is '$mend'"
$mend
check 0 ls everything
grep -Eq '✓ everything +stdio +ready' "$log" || fail 'everything is not ready'

step 'a broken cache of uv is recognised'
environment=$(find "$UV_CACHE_DIR" -type d -path '*/site-packages/anyio' | head -1)
rm -rf "$environment"
check 0 ls time
shows 'uv cache clean'
uv cache clean --quiet
check 0 ls time
grep -Eq '✓ time +stdio +ready' "$log" || fail 'time is not ready'

step 'take-over: what Pegboard cannot use stays with its client'
check 0 import --take-over
shows 'may need a login, stays in cursor'
shows 'needs: PEGBOARD_INPUT_KEY, stays in vscode'
grep -q 'tracker.example.com' "$cursor" || fail 'the tracker is gone'
grep -q '"keyed"' "$vscode" || fail 'keyed is gone'
grep -q '"here"' "$vscode" || fail 'here is gone'
for file in "${files[@]}"; do
    grep -q 'pegboard' "$file" || fail "$file does not use Pegboard"
    ! grep -q 'server-everything\|server-memory@2026.8.31"\]}}}\|mcp-server-time' "$file" || fail "$file has its servers still"
done

step 'four clients at once: one gateway, one process per server'
"$scripts/first-day-clients.py" "$pegboard" "${files[@]}" >"$log" 2>&1 || fail 'the clients do not share their servers'
check 0 stop
! pgrep -f "$HOME/.npm/_npx" >"$log" || fail 'servers are left'

step 'sessions: clients that have left are named'
check 0 sessions --json
for file in "${files[@]}"; do shows "\"client\": \"${file:0:60}"; done

step 'restore: byte for byte'
check 0 restore --all
for file in "${files[@]}"; do cmp "$file" "$file.before" || fail "$file differs"; done

printf 'The first day passed in %s s.\n' "$SECONDS"
