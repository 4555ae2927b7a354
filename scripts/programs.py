"""Programs, rows and exceptions of the scripts that compare servers with and without Pegboard."""

import json
import os
import re
import subprocess
import sys
import time
from fnmatch import fnmatchcase
from itertools import product

# First line of a server that prints its address.
ADDRESS = r"http://\S+/mcp"


class Programs:
    """Programs that run until this one ends, each with a log in a folder."""

    def __init__(self, logs):
        self.logs, self.running = logs, []

    def start_all(self, commands):
        """Runs programs at the same time; returns their addresses by the same names."""
        waiting = {name: self.start(command) for name, command in commands.items()}
        return {name: found() for name, found in waiting.items()}

    def start_pegboard(self, pegboard, home, configuration):
        """Runs Pegboard with this configuration and a new state in a folder; returns its address."""
        file = home / "pegboard.json"
        file.write_text(json.dumps(configuration, indent=2))
        serve = [pegboard, "serve", str(file), "--http", "127.0.0.1:0", "--open", "--no-watch"]
        return self.start(serve, env={**os.environ, "PEGBOARD_STATE": str(home / "state")})()

    def start(self, command, pattern=ADDRESS, **options):
        """Runs a program; returns a function that waits for what it prints first."""
        log = self.logs / f"started-{len(self.running)}.log"
        with open(log, "wb") as out:
            program = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, **options)
        self.running.append(program)

        def found():
            for _ in range(600):
                has_ended = program.poll() is not None
                match = re.search(pattern, log.read_text(errors="replace"))
                if match:
                    return match.group(0)
                if has_ended:
                    break
                time.sleep(0.1)
            sys.exit(f"{command} did not print {pattern}: {log.read_text(errors='replace')}")

        return found

    def end(self):
        for program in self.running:
            program.terminate()
        for program in self.running:
            program.wait(10)
        self.running.clear()


def chosen(rows, only):
    """The rows whose name is like one of the patterns; all of them without any."""
    found = [row for row in rows if not only or any(fnmatchcase(row.name, pattern) for pattern in only)]
    if not found:
        sys.exit(f"nothing is like {' or '.join(only)}")
    return found


class Exceptions:
    """Outcomes that are not as they should be, for a reason, by patterns of rows and of what is checked in them."""

    def __init__(self, file):
        self.entries = json.loads(file.read_text())
        numbered = enumerate(self.entries, 1)
        self.listed = [(number, *pair) for number, entry in numbered for pair in product(entry["rows"], entry["checks"])]
        self.unused = set(self.listed)

    def find(self, row, check):
        """The number of an entry, from 1, or `None`."""
        found = [used for used in self.listed if fnmatchcase(row, used[1]) and fnmatchcase(check, used[2])]
        self.unused -= set(found)
        return found[0][0] if found else None

    def stale(self):
        """A line for each that was not needed."""
        return [f"exceptions.json: {check} of {row!r} works: remove it from exception {n}" for n, row, check in sorted(self.unused)]


def transparent_profile(toolbox, surface="flat"):
    """The profile of one toolbox, under the names of its server."""
    return {"expose": surface, "transparent": True, "toolboxes": [toolbox]}
