#!/usr/bin/env python3
"""Checks the licences of all dependencies and that no banned crate is linked.

Reads the normal and build dependencies of the workspace, on every platform and with all features, from `cargo tree`;
development dependencies are not part of the product.
"""

import pathlib
import re
import subprocess
import sys

ALLOWED = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",  # The root certificates, which are data.
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
}
BANNED = {
    "openssl-sys": "TLS is rustls with aws-lc-rs",
    "ring": "aws-lc-rs is the only TLS provider",
}


def is_allowed(expression):
    """Evaluates an SPDX expression; `AND` binds tighter than `OR`, and `/` is an old spelling of `OR`."""
    tokens = re.findall(r"[()]|[\w.+-]+", expression.replace("/", " OR "))

    def term():
        token = tokens.pop(0)
        if token == "(":
            value = alternatives()
            tokens.pop(0)
        else:
            value = token in ALLOWED
        if tokens and tokens[0] == "WITH":
            # An exception only adds permissions.
            del tokens[:2]
        return value

    def conjunction():
        value = term()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = term() and value
        return value

    def alternatives():
        value = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = conjunction() or value
        return value

    return alternatives()


root = pathlib.Path(__file__).resolve().parent.parent
command = ["cargo", "tree", "--workspace", "--all-features", "--locked", "--target", "all"]
command += ["--edges", "normal,build", "--prefix", "none", "--format", "{p}|{l}"]
tree = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
# `name v1.2.3|MIT`, or `name v1.2.3 (/path)|MIT` for a crate of the workspace; `(*)` marks a repetition.
linked = {line.removesuffix(" (*)") for line in tree.splitlines() if line}

problems = []
for package, _, licence in sorted(line.partition("|") for line in linked):
    name = package.split()[0]
    if name in BANNED:
        problems.append(f"{package} is banned: {BANNED[name]}")
    if "(/" in package:
        continue
    if not licence:
        problems.append(f"{package} states no licence")
    elif not is_allowed(licence):
        problems.append(f"{package} has a licence that is not allowed: {licence}")

print(f"{len(linked)} crates: {'licences and bans are fine' if not problems else 'problems found'}")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
