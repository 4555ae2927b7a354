"""The official conformance suite through the gateway: runner -> Pegboard -> server.

Every check that a server passes directly must pass through Pegboard, whichever era and transport the server speaks and
whichever surface the profile has, but for those that `exceptions.json` lists with a reason. One that is listed and
passes is an error, too. Writes what it has measured to docs/conformance.md.

usage: grid.py SUITE PEGBOARD TESTKIT PYTHON NODE HOME [CELL…]
  PYTHON  an interpreter that has the packages of the third-party servers
  NODE    a folder with a `node_modules` that has those of the others
  CELL    a pattern of cells (`session > fastmcp*`); with one, the page is not written
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from page import write_page

sys.path.append(str(Path(__file__).resolve().parents[1]))
from programs import Exceptions, Programs, chosen, transparent_profile

SETS = {"session": "2025-11-25", "stateless": "2026-07-28"}
# Transports by kind of server. The fixture is a server of one era, or of both (`dual`).
FIXTURES = {
    "session": ["stdio", "http", "websocket", "sse"],
    "stateless": ["stdio", "http", "websocket"],
    "dual": ["stdio", "http", "websocket"],
}
DEDICATED = ["session", "dual"]
SURFACES = ["meta", "agent"]
# The suite mostly waits.
AT_ONCE = 5
LIMIT_SECONDS = 300

suite, pegboard, testkit, python, modules, home, *only = sys.argv[1:]
home = Path(home).resolve()
root = Path(__file__).resolve().parents[2]
here = root / "scripts/conformance"
# Third-party servers, each of both eras.
OTHERS = {
    "fastmcp": [python, str(here / "python_server.py"), "fastmcp"],
    "python": [python, str(here / "python_server.py"), "mcp"],
    "typescript": ["node", f"{modules}/conformance-server.mjs"],
}


def run_suite(name, url, revision):
    """How often each check passed and how often it did not, by scenario and check."""
    out = home / "out" / re.sub(r"\W+", "-", name)
    subprocess.run(["rm", "-rf", out], check=True)
    log_file = home / f"{out.name}.log"
    with open(log_file, "wb") as log:
        suite_command = ["node", suite, "server", "--url", url]
        # The first call starts the server, which takes longer than some checks wait (0.5 s).
        warm_up = [*suite_command, "--scenario", "tools-call-simple-text", "--spec-version", revision]
        subprocess.run(warm_up, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS)
        command = [*suite_command, "--requirements", revision, "-o", str(out)]
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
        sys.exit(f"{name}: the suite checked nothing: {log_file.read_text(errors='replace')[-2000:]}")
    return checks


class Cell:
    """A client era, a server, the transport between it and Pegboard, and a surface."""

    def __init__(self, client, server, transport, surface="flat", note=""):
        self.client, self.server, self.transport, self.surface, self.note = client, server, transport, surface, note
        self.toolbox = "-".join(filter(None, [server, transport, note]))
        suffix = ", ".join(filter(None, [note, surface if surface != "flat" else ""]))
        self.name = f"{client} > {server} over {transport}" + (f", {suffix}" if suffix else "")

    @property
    def profile(self):
        return f"{self.surface}-{self.toolbox}"

    @property
    def direct(self):
        """The run without Pegboard that this one is compared with."""
        return f"direct {self.client} > {self.server if self.server in OTHERS else 'fixture'}"

    def judge(self, direct, through, exceptions):
        """Sets the outcome of every check that passes directly, and returns those that fail without an exception."""
        self.passed, self.excused, problems = [], {}, []
        for check, (n_direct, n_failed, _) in sorted(direct.items()):
            if n_failed or not n_direct:
                continue
            n_ok, n_bad, why = through.get(check, (0, 0, "it was not reached"))
            if not n_bad and n_ok >= n_direct:
                self.passed.append(check)
            elif number := exceptions.find(self.name, check):
                self.excused[check] = number
            else:
                problems.append(f"{self.name}: {check}: {why}")
        return problems


def all_cells():
    for client in SETS:
        for server, transports in FIXTURES.items():
            for transport in transports:
                yield Cell(client, server, transport)
        for server in DEDICATED:
            yield Cell(client, server, "stdio", note="dedicated")
        for server in OTHERS:
            for transport in ("stdio", "http"):
                yield Cell(client, server, transport)
        for surface in SURFACES:
            for server in FIXTURES:
                yield Cell(client, server, "http", surface)


def server_command(server, transport):
    """The command of a server that speaks stdio, or else prints its address."""
    if server in OTHERS:
        return OTHERS[server] + ([] if transport == "stdio" else ["http"])
    command = [testkit, "stdio"] if transport == "stdio" else [testkit, "http", "0"]
    return command + (["--era", server] if server in SETS else [])


def server_settings(cell, addresses):
    base = addresses.get(cell.toolbox, "").removesuffix("/mcp")
    command = server_command(cell.server, "stdio")
    settings = {
        "stdio": {"command": command[0], "args": command[1:]},
        "http": {"url": f"{base}/mcp", "type": "http"},
        "websocket": {"url": f"{base}/ws".replace("http://", "ws://"), "type": "websocket"},
        "sse": {"url": f"{base}/legacy/sse", "type": "sse"},
    }[cell.transport]
    return settings | ({"shared": False} if cell.note else {})


def configuration(cells, addresses):
    toolboxes, profiles = {}, {}
    for cell in cells:
        servers = {"fixture": server_settings(cell, addresses)}
        toolboxes[cell.toolbox] = {"description": "The fixture", "mcpServers": servers}
        profiles[cell.profile] = transparent_profile(cell.toolbox, cell.surface)
    return {"pegboard": 1, "toolboxes": toolboxes, "profiles": profiles}


def measure(cells):
    """Runs the suite for all cells and for what they are compared with."""
    # Runs that come at the same time have servers of their own: what one run changes, another would hear of.
    alone = {cell.direct: cell.server if cell.server in OTHERS else cell.client for cell in cells}
    commands = {server: server_command(server, "http") for server in alone.values()}
    commands |= {cell.toolbox: server_command(cell.server, "http") for cell in cells if cell.transport != "stdio"}
    addresses = programs.start_all(commands)
    gateway = programs.start_pegboard(pegboard, home, configuration(cells, addresses))
    adapter = programs.start(["node", str(here / "adapter.mjs"), gateway], r"http://\S+")()

    lanes = defaultdict(list)
    for cell in cells:
        server = alone[cell.direct]
        if not any(run[0] == cell.direct for run in lanes[server]):
            lanes[server].append((cell.direct, addresses[server], SETS[cell.client]))
        url = f"{gateway if cell.surface == 'flat' else adapter}/{cell.profile}"
        lanes[cell.toolbox].append((cell.name, url, SETS[cell.client]))
    measured = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        longest = sorted(lanes.values(), key=len, reverse=True)
        for lane in pool.map(lambda lane: [(run[0], run_suite(*run)) for run in lane], longest):
            measured.update(lane)
    return measured


def main():
    cells = chosen(all_cells(), only)
    exceptions = Exceptions(here / "exceptions.json")
    measured = measure(cells)
    problems = [problem for cell in cells for problem in cell.judge(measured[cell.direct], measured[cell.name], exceptions)]
    for cell in cells:
        n_passed, n_excused = len(cell.passed), len(cell.excused)
        print(f"through Pegboard, {cell.name}: {n_passed} of {n_passed + n_excused} checks passed, {n_excused} not expressible")
    if not only:
        problems += exceptions.stale()
        write_page(root / "docs/conformance.md", cells, exceptions.entries)
    print("\n".join(problems))
    return bool(problems)


programs = Programs(home)
try:
    sys.exit(main())
finally:
    programs.end()
