#!/usr/bin/env python3
"""Starts Pegboard as several clients do, from their configuration files, and checks that they share its servers.

`first-day-clients.py PEGBOARD FILE…`: every file has an entry `pegboard`. All clients call the same tool at once. Then every
server that runs must be one process, and all clients must use one gateway.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

# A part of the command line of each server's own process.
SERVERS = {
    "everything": ".bin/mcp-server-everything",
    "memory": ".bin/mcp-server-memory",
    "time": "mcp-server-time",
}
TIMEOUT = 120


def entry_of(path):
    """Returns the command line of the entry of Pegboard."""
    text = pathlib.Path(path).read_text()
    if path.endswith(".toml"):
        server = tomllib.loads(text)["mcp_servers"]["pegboard"]
    else:
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
        document = json.loads("\n".join(lines))
        server = (document.get("mcpServers") or document["servers"])["pegboard"]
    return [server["command"], *server["args"]]


class Client:
    def __init__(self, command, name):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        self.name = name
        self.last_id = 0

    def send(self, method, params, is_request=True):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if is_request:
            self.last_id += 1
            message["id"] = self.last_id
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def result(self):
        """Returns the result of the last request."""
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == self.last_id and "method" not in message:
                assert "result" in message, message
                return message["result"]
        sys.exit(f"{self.name}: the connection has ended")


def command_lines():
    """Returns the command lines of all processes, each with spaces between the words."""
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                yield (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            pass


def n_processes(part):
    # `uvx`, `npm exec` and shells start the server, and have its name, too. So has the supervisor of Pegboard.
    own = [line for line in command_lines() if part in line and line.split()[0].rpartition("/")[2].startswith(("node", "python"))]
    return len(own)


pegboard, files = sys.argv[1], sys.argv[2:]
clients = [Client(entry_of(path), path) for path in files]
for client in clients:
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client.name, "version": "1"}}
    client.send("initialize", info)
for client in clients:
    client.result()
    client.send("notifications/initialized", {}, is_request=False)
for server, tool, arguments in [
    ("everything", "echo", {"message": "hello"}),
    ("memory", "read_graph", {}),
    ("time", "get_current_time", {"timezone": "UTC"}),
]:
    for client in clients:
        client.send("tools/call", {"name": "open_toolbox", "arguments": {"toolbox": server}})
    for client in clients:
        opened = client.result()
        assert not opened.get("isError"), (client.name, opened)
    call = {"tool": {"toolbox": server, "server": server, "name": tool}, "arguments": arguments}
    for client in clients:
        client.send("tools/call", {"name": "use_tool", "arguments": call})
    for client in clients:
        result = client.result()
        assert not result.get("isError"), (client.name, result)
counted = {server: n_processes(part) for server, part in SERVERS.items()}
status = json.loads(subprocess.run([pegboard, "status", "--json"], stdout=subprocess.PIPE, timeout=TIMEOUT, check=True).stdout)
print(f"{len(clients)} clients; processes: {counted}; clients of the gateway: {len(status['clients'])}")
assert counted == dict.fromkeys(SERVERS, 1), counted
assert len(status["clients"]) == len(clients), status["clients"]
for client in clients:
    client.process.stdin.close()
    client.process.wait(TIMEOUT)
