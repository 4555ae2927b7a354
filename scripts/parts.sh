# Functions shared by the scripts that run Pegboard with third-party software. Source it from the project's root.

# install HOME: installs the packages of `node_parts` and `python_parts` under HOME if needed, and sets `$home`.
install() {
    home=$PWD/$1
    mkdir -p "$home/node" "$home/log"
    local wanted
    wanted=$(printf '%s\n' "${node_parts[@]}" "${python_parts[@]}")
    if [ "$(cat "$home/installed" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    echo "Installing ${node_parts[*]} ${python_parts[*]} …"
    rm -f "$home/installed"
    (cd "$home/node" && echo '{"private":true}' >package.json &&
        npm install --silent --no-audit --no-fund "${node_parts[@]}")
    python3 -m venv --clear "$home/python"
    "$home/python/bin/pip" install --quiet --disable-pip-version-check "${python_parts[@]}"
    echo "$wanted" >"$home/installed"
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
