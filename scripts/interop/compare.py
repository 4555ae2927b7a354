"""Third-party servers and clients, with and without Pegboard between them.

A probe uses every feature of a server, in each era; a client uses every feature that it has of one server. What they get
directly they must get through Pegboard, but for what `exceptions.json` lists with a reason: differences, and what does not
work directly either. One that is listed and works is an error, too. Prints a table and, for each problem, both outcomes.

usage: compare.py PEGBOARD TESTKIT PARTS HOME [NAME…]
  PARTS  the folder of the packages; its `node` has the scripts of this folder that are for Node
  NAME   a pattern of rows (`fastmcp*`); without one all of them
"""

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from programs import Exceptions, Programs, chosen, transparent_profile

pegboard, testkit, parts, home, *only = sys.argv[1:]
parts, home = Path(parts).absolute(), Path(home).absolute()
here = Path(__file__).resolve().parent
node = "node"
modules = parts / "node/node_modules"
environment = dict(os.environ)
# Most of them mostly wait.
AT_ONCE = 4
LIMIT_SECONDS = 240


def call(tool, **arguments):
    return {"tool": tool, "arguments": arguments}


# The features of the servers in this folder.
ALL = {
    "list": True,
    "call": call("echo", message="Grüße"),
    "structured": call("add", a=2, b=3),
    "images": call("picture"),
    "errors": call("fail"),
    "elicitation": call("ask"),
    "sampling": call("compose"),
    "roots": call("roots"),
    "progress": call("count"),
    "cancel": {"tool": "wait", "then": call("was_cancelled")},
    "state": [call("remember", value="tea"), call("recall")],
    "resources": "peer://text",
    "prompts": {"name": "hello", "arguments": {"name": "Ann"}},
}
FEATURES = [*ALL, "agent"]


def without(*features):
    return {name: step for name, step in ALL.items() if name not in features}


def script(name):
    return {"command": node, "args": [str(parts / "node" / name)]}


def python(virtual, *arguments):
    return {"command": str(parts / virtual / "bin/python"), "args": [str(here / "fastmcp_server.py"), *arguments]}


THOUGHT = call("sequentialthinking", thought="Look", nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1)
# Without arguments it has the directories that the client gives as roots, outside of calls.
FILESYSTEM = {"command": node, "args": [str(modules / "@modelcontextprotocol/server-filesystem/dist/index.js")]}
IN_ROOTS = {
    "list": True,
    "roots": call("list_allowed_directories") | {"until": str(home / "root")},
    "errors": call("get_file_info", path="/etc/hostname"),
}
# Servers by name: how each is started, and its features. One that has `http` prints its address.
SERVERS = {
    "FastMCP 4": (python("python"), ALL),
    "FastMCP 4 over HTTP": (python("python", "http") | {"http": True}, ALL),
    "FastMCP 2": (python("python-1"), ALL),
    "FastMCP 2 over HTTP": (python("python-1", "http") | {"http": True}, ALL),
    # It asks for roots after the handshake.
    "fastmcp for TypeScript": (script("fastmcp-server.mjs") | {"roots": "union"}, without("state")),
    "TypeScript SDK 2": (script("typescript-server.mjs"), without("state")),
    "tmcp": (script("tmcp-server.mjs"), without("state", "cancel")),
    "mcp-lite": (script("mcp-lite-server.mjs") | {"http": True}, without("state", "cancel", "roots")),
    "sequential-thinking": (
        {"command": node, "args": [str(modules / "@modelcontextprotocol/server-sequential-thinking/dist/index.js")]},
        {"list": True, "call": THOUGHT, "errors": call("sequentialthinking", thought=5)},
    ),
    "server-filesystem": (FILESYSTEM | {"shared": False}, IN_ROOTS),
    "server-filesystem, union": (FILESYSTEM | {"roots": "union"}, IN_ROOTS),
    "kubernetes-mcp-server (Go)": (
        {
            "command": node,
            "args": [str(modules / "kubernetes-mcp-server/bin/index.js"), "--kubeconfig", str(home / "kubeconfig"), "--cluster-provider", "kubeconfig"],
        },
        {"list": True, "call": call("configuration_view", minified=True), "errors": call("pods_list")},
    ),
    "Azure MCP (.NET)": (
        {
            "command": node,
            "args": [str(modules / "@azure/mcp/index.js"), "server", "start", "--mode", "namespace", "--namespace", "get_azure_bestpractices"],
            "env": {"AZURE_MCP_COLLECT_TELEMETRY": "false", "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1", "HOME": str(home)},
        },
        {
            "list": True,
            "call": call("get_azure_bestpractices", intent="list", learn=True),
            # The server has a model choose.
            "sampling": call("get_azure_bestpractices", intent="x", command="nothing"),
        },
    ),
}
# Clients by name: the Python environment, or none for Node, and the function of the script.
CLIENTS = {
    "LangChain": ["python-1", "langchain"],
    "mcp-use": ["python-1", "mcp_use"],
    "smolagents": ["python-1", "smolagents"],
    "openai-agents": ["python", "openai_agents"],
    "pydantic-ai": ["python", "pydantic_ai"],
    "LlamaIndex": ["python", "llama_index"],
    "AI SDK": [None, "aiSdk"],
    "Mastra": [None, "mastra"],
    "mcporter": [None, "mcporter"],
}
CLIENT_SERVERS = ["FastMCP 2 over HTTP", "FastMCP 4 over HTTP"]
ERAS = ["session", "stateless"]


def profile(name):
    return re.sub(r"\W+", "-", name).strip("-").lower()


class Row:
    """A server used by the probe in one era, or a client that uses a server."""

    def __init__(self, name, command_for):
        self.name, self.command_for = name, command_for

    def measure(self):
        """Runs it directly and through Pegboard."""
        self.direct, self.through = run(self, "direct"), run(self, "through")
        return self


def run(row, way):
    """The outcome of each feature."""
    log = home / "log" / f"{profile(row.name)}-{way}"
    with open(log, "w") as err:
        try:
            done = subprocess.run(
                row.command_for(way), env=environment, stdout=subprocess.PIPE, stderr=err, stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return {"all": {"error": f"it did not end within {LIMIT_SECONDS} s"}}
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        words = (lines or log.read_text(errors="replace").strip().splitlines() or ["nothing was printed"])[-1]
        return {"all": {"error": f"exit code {done.returncode}: {words}"}}


def rows(addresses, gateway):
    for name, (server, plan) in SERVERS.items():
        for era in ERAS:

            def probe(way, era=era, name=name, server=server, plan=plan):
                direct = {"url": addresses[name]} if name in addresses else server
                target = direct if way == "direct" else {"url": f"{gateway}/{profile(name)}-{era}"}
                return [node, str(parts / "node/probe.mjs"), era, json.dumps(plan), json.dumps(target)]

            yield Row(f"{name}, {era}", probe)
    for name, (virtual, function) in CLIENTS.items():
        for server in CLIENT_SERVERS:

            def client(way, virtual=virtual, function=function, server=server):
                url = addresses[server] if way == "direct" else f"{gateway}/{profile(server)}-session"
                if virtual:
                    return [str(parts / virtual / "bin/python"), str(here / "client.py"), function, url]
                return [node, str(parts / "node/interop-client.mjs"), function, url]

            yield Row(f"{name} with {server}", client)


def is_error(feature, outcome):
    """Whether a feature does not work. That of errors works if there is one."""
    if not isinstance(outcome, dict):
        return outcome is None
    got = outcome.get("got")
    reported = isinstance(got, dict) and (got.get("isError") or got.get("status") == "error")
    return "error" in outcome or (bool(reported) and feature != "errors")


def is_problem(feature, direct, through):
    """Whether something is lost, or cannot be compared."""
    return is_error(feature, direct) or direct != through


def table(measured, exceptions):
    """Prints the outcomes; returns the problems that are not listed."""
    width = max(len(row.name) for row in measured)
    print(" " * width, *FEATURES)
    problems = []
    for row in measured:
        cells = []
        for feature in FEATURES:
            direct, through = (way.get(feature, way.get("all")) for way in (row.direct, row.through))
            if direct is None and through is None:
                cells.append("–".center(len(feature)))
                continue
            marks = "".join("✗" if is_error(feature, outcome) else "✓" for outcome in (direct, through))
            if is_problem(feature, direct, through):
                listed = exceptions.find(row.name, feature)
                marks += "~" if listed else "!"
                if not listed:
                    problems.append((row.name, feature, direct, through))
            cells.append(marks.center(len(feature)))
        print(row.name.ljust(width), *cells)
    return problems


def configuration(addresses):
    toolboxes, profiles = {}, {}
    for name, era in product(SERVERS, ERAS):
        server, _ = SERVERS[name]
        # Servers with equal settings are one, and one probe would find the state of the other.
        own = {"env": server.get("env", {}) | {"PEER": era}}
        settings = {"url": addresses[name]} if name in addresses else server | own
        toolbox = f"{profile(name)}-{era}"
        toolboxes[toolbox] = {"description": name, "mcpServers": {"peer": settings}}
        profiles[toolbox] = transparent_profile(toolbox)
    return {"pegboard": 1, "toolboxes": toolboxes, "profiles": profiles}


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "peer",
    "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "peer"}}],
    # Nothing listens here.
    "clusters": [{"name": "peer", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "peer", "user": {}}],
}


# A model that calls a tool, and is content with what it says.
MODEL = {
    "turns": [
        {"when": {"contains": "Echo: tea"}, "times": 0, "act": {"answer": {"text": "It said tea."}}},
        {"times": 0, "act": {"answer": {"tool_calls": [{"name": "echo", "arguments": {"message": "tea"}}]}}},
    ]
}


def main():
    (home / "log").mkdir(parents=True, exist_ok=True)
    (home / "root").mkdir(exist_ok=True)
    environment["PEER_ROOT"] = str(home / "root")
    (home / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    (home / "model.json").write_text(json.dumps(MODEL))
    environment["PEER_MODEL"] = programs.start([testkit, "model-server", "0", str(home / "model.json")], r"http://\S+/v1")()
    commands = {name: [server["command"], *server["args"]] for name, (server, _) in SERVERS.items() if server.get("http")}
    addresses = programs.start_all(commands)
    gateway = programs.start_pegboard(pegboard, home, configuration(addresses))

    selected = chosen(rows(addresses, gateway), only)
    start = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        measured = list(pool.map(Row.measure, selected))
    exceptions = Exceptions(here / "exceptions.json")
    problems = table(measured, exceptions)
    print("\nFirst directly, then through Pegboard: ✓ works, ✗ does not, ~ is a listed problem, ! another one.")
    for row, feature, *outcomes in problems:
        texts = [json.dumps(outcome, ensure_ascii=False, sort_keys=True) for outcome in outcomes]
        # The common beginning may be long.
        start_at = max(0, len(os.path.commonprefix(texts)) - 300)
        print(f"\n{row}: {feature}")
        for way, text in zip(("direct", "through"), texts):
            print(f"  {way}: {'…' if start_at else ''}{text[start_at:][:1500]}")
    stale = exceptions.stale() if not only else []
    print("".join(f"\n{line}" for line in stale))
    print(f"{len(measured)} rows in {time.monotonic() - start:.0f} s")
    return bool(problems or stale)


programs = Programs(home / "log")
try:
    sys.exit(main())
finally:
    programs.end()
