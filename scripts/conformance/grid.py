"""The official conformance suite through the gateway: runner -> Pegboard -> fixture.

Every check that the fixture passes directly must pass through Pegboard, whichever era and transport the fixture
speaks, but for those that `exceptions.json` lists with a reason. One that is listed and passes is an error, too.
Writes what it has measured to docs/conformance.md.

usage: grid.py SUITE PEGBOARD TESTKIT HOME
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SETS = {"session": "2025-11-25", "stateless": "2026-07-28"}
TRANSPORTS = {"session": ["stdio", "http", "websocket", "sse"], "stateless": ["stdio", "http", "websocket"]}
# The suite mostly waits.
AT_ONCE = 4
LIMIT_SECONDS = 300

suite, pegboard, testkit, home = sys.argv[1:5]
home = Path(home).resolve()
root = Path(__file__).resolve().parents[2]


def started(command, pattern, **options):
    """Runs a program until this one ends; gives what it says first that looks like the pattern."""
    log = home / f"{Path(command[0]).name}-{len(programs)}.log"
    with open(log, "wb") as out:
        programs.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, **options))
    for _ in range(300):
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found.group(0)
        time.sleep(0.1)
    sys.exit(f"{command[0]} did not start: {log.read_text(errors='replace')}")


def run_suite(name, url, revision):
    """How often each check passed and how often it did not, by scenario and check."""
    out = home / "out" / name
    subprocess.run(["rm", "-rf", out], check=True)
    with open(home / f"{name}.log", "wb") as log:
        command = ["node", suite, "server", "--url", url, "--requirements", revision, "-o", str(out)]
        try:
            subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            sys.exit(f"{name}: the suite did not end within {LIMIT_SECONDS} s")
    checks = defaultdict(lambda: [0, 0, ""])
    for file in sorted(out.glob("*/checks.json")):
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name)
        for check in json.loads(file.read_text()):
            outcome = checks[f"{scenario}/{check['id']}"]
            if check["status"] == "SUCCESS":
                outcome[0] += 1
            elif check["status"] in ("FAILURE", "WARNING"):
                outcome[1] += 1
                outcome[2] = check.get("errorMessage") or ""
    if not checks:
        sys.exit(f"{name}: the suite checked nothing: {(home / f'{name}.log').read_text(errors='replace')[-2000:]}")
    return checks


def is_listed(exception, cell, check):
    return exception["check"] == check and cell.startswith(exception["cells"])


def judge(cell, direct, through, exceptions, problems, used):
    """How many checks passed, how many there are, and how many could not pass."""
    n_passed = n_excused = 0
    for check, (n_direct, n_failed, _) in sorted(direct.items()):
        if n_failed or not n_direct:
            continue
        n_ok, n_bad, why = through.get(check, (0, 0, "it was not reached"))
        listed = [number for number, exception in enumerate(exceptions) if is_listed(exception, cell, check)]
        if not n_bad and n_ok >= n_direct:
            n_passed += 1
        elif listed:
            n_excused += 1
            used.update((number, cell) for number in listed)
        else:
            problems.append(f"{cell}: {check}: {why}")
    return n_passed, n_passed + n_excused, n_excused


def configuration(addresses):
    toolboxes, profiles = {}, {}
    for era, transports in TRANSPORTS.items():
        base = addresses[era].removesuffix("/mcp")
        servers = {
            "stdio": {"command": testkit, "args": ["stdio", "--era", era]},
            "http": {"url": f"{base}/mcp", "type": "http"},
            "websocket": {"url": f"{base}/ws".replace("http://", "ws://"), "type": "websocket"},
            "sse": {"url": f"{base}/legacy/sse", "type": "sse"},
        }
        for transport in transports:
            name = f"{era}-{transport}"
            toolboxes[name] = {"description": "The fixture", "mcpServers": {"fixture": servers[transport]}}
            profiles[name] = {"expose": "flat", "transparent": True, "toolboxes": [name]}
    return {"pegboard": 1, "toolboxes": toolboxes, "profiles": profiles}


WORDS = {"session": "session era (2025-11-25)", "stateless": "stateless era (2026-07-28)"}


def report(rows, exceptions, used):
    lines = [
        "# Conformance",
        "",
        "Results of the official conformance suite, run against the fixture directly and then through Pegboard (profile `flat`,",
        "`transparent`) in front of the fixture. A check passes if everything that passes directly also passes",
        "through Pegboard. `scripts/conformance.sh` runs the suite and writes this page.",
        "",
        "| client | server | over | checks passed | of | not expressible |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {WORDS[c]} | {WORDS[s]} | {t} | {passed} | {total} | {excused} |" for c, s, t, passed, total, excused in rows]
    lines += ["", "## Not expressible", "", "| check | cells | reason |", "|---|---|---|"]
    for number, exception in enumerate(exceptions):
        cells = sorted({cell for one, cell in used if one == number})
        lines.append(f"| `{exception['check']}` | {', '.join(cells)} | {exception['reason']} |")
    if not exceptions:
        lines.append("| nothing | | |")
    lines += ["", "`A > B over C` is a client of era A, a server of era B, and transport C between Pegboard and the server.", ""]
    (root / "docs/conformance.md").write_text("\n".join(lines))


programs = []
try:
    addresses = {era: started([testkit, "http", "0", "--era", era], r"http://\S+/mcp") for era in SETS}
    (home / "grid.json").write_text(json.dumps(configuration(addresses)))
    serve = [pegboard, "serve", str(home / "grid.json"), "--http", "127.0.0.1:0", "--open"]
    gateway = started(serve, r"http://\S+/mcp", env={**os.environ, "PEGBOARD_STATE": str(home / "state")})

    cells = [(client, server, transport) for client in SETS for server in SETS for transport in TRANSPORTS[server]]
    runs = {f"direct {era}": (addresses[era], SETS[era]) for era in SETS}
    runs |= {f"{c} > {s} over {t}": (f"{gateway}/{s}-{t}", SETS[c]) for c, s, t in cells}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Cells of one server come one after another: what one run changes, another would hear of.
        lanes = defaultdict(list)
        for name, (url, revision) in runs.items():
            lanes[url].append((name, url, revision))
        measured = {}
        for lane in pool.map(lambda lane: [(run[0], run_suite(*run)) for run in lane], lanes.values()):
            measured.update(lane)

    exceptions = json.loads((root / "scripts/conformance/exceptions.json").read_text())
    problems, used, rows = [], set(), []
    for client, server, transport in cells:
        cell = f"{client} > {server} over {transport}"
        rows.append((client, server, transport, *judge(cell, measured[f"direct {client}"], measured[cell], exceptions, problems, used)))
        passed, total, excused = rows[-1][3:]
        print(f"through Pegboard, {cell}: {passed} of {total} checks passed, {excused} not expressible")
    for number, exception in enumerate(exceptions):
        if not any(one == number for one, _ in used):
            problems.append(f"exceptions.json: {exception['check']} passes in {exception['cells']!r}: take it out")
    report(rows, exceptions, used)
    print("\n".join(problems))
    sys.exit(bool(problems))
finally:
    for program in programs:
        program.terminate()
    for program in programs:
        program.wait(10)
