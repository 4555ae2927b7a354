"""Programs, rows and exceptions of the scripts that compare servers with and without Pegboard."""

import re
import subprocess
import sys
import time
from fnmatch import fnmatchcase

# First line of a server that prints its address.
ADDRESS = r"http://\S+/mcp"


class Programs:
    """Programs that run until this one ends, each with a log in a folder."""

    def __init__(self, logs):
        self.logs, self.running = logs, []

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


def transparent_profile(toolbox, surface="flat"):
    """The profile of one toolbox, under the names of its server."""
    return {"expose": surface, "transparent": True, "toolboxes": [toolbox]}
