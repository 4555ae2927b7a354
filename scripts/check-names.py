#!/usr/bin/env python3
"""Checks names and doc comments of the workspace.

A type name may be defined once; a doc comment must not open with a question word, and no text may use an indefinite
pronoun. `check-names.txt`, beside this script, lists exceptions: type names that may be defined more than once, and files
with comments that are not checked. An exception that is no longer needed is an error, too. Reads the `src` folders of all
crates up to the first `#[cfg(test)]` of each file.
"""

import collections
import pathlib
import re
import sys

TYPE = re.compile(r"^(?:pub(?:\([a-z ]+\))? )?(?:struct|enum|trait|union|type) (\w+)", re.MULTILINE)
OPENER = re.compile(
    r"^(?:What|How|Whether|Who|Whom|Whose|Whoever|Whatever|Why|Where|Somebody|Someone|Nobody|Something|Everything|"
    r"Everybody|Anybody)\b"
)
PRONOUN = re.compile(r"\b(?:somebody|nobody|whoever|whichever|whose|everybody|anybody)\b", re.IGNORECASE)

root = pathlib.Path(__file__).resolve().parent.parent
exceptions_path = pathlib.Path(__file__).with_suffix(".txt")
exceptions = set()
for line in exceptions_path.read_text().splitlines():
    name = line.partition("#")[0].strip()
    if name:
        exceptions.add(name)

problems = []
unused = set(exceptions)
definitions = collections.defaultdict(list)
n_comments = 0
for path in sorted(root.glob("crates/*/src/**/*.rs")):
    code = path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0]
    shown = str(path.relative_to(root))
    for match in TYPE.finditer(code):
        definitions[match.group(1)].append(f"{shown}:{code.count(chr(10), 0, match.start(1)) + 1}")
    findings = []
    continues = False
    for number, line in enumerate(code.splitlines(), 1):
        text = line.strip()
        is_doc = text.startswith(("///", "//!"))
        if is_doc and not continues:
            n_comments += 1
            if OPENER.match(text[3:].strip()):
                findings.append(f"{shown}:{number}: doc comment opens with a question: {text}")
        if PRONOUN.search(text):
            findings.append(f"{shown}:{number}: indefinite pronoun: {text}")
        continues = is_doc
    if findings and shown in exceptions:
        unused.discard(shown)
    else:
        problems += findings

repeated = {name: places for name, places in definitions.items() if len(places) > 1}
unused -= repeated.keys()
for name in sorted(repeated.keys() - exceptions):
    problems.append(f"type {name} is defined {len(repeated[name])} times: {', '.join(repeated[name])}")
for exception in sorted(unused):
    problems.append(f"{exceptions_path.name}: {exception} is not needed; remove it")

n_types = sum(map(len, definitions.values()))
n_repeated = sum(map(len, repeated.values()))
print(f"{n_types} types, {n_repeated} share a name; {n_comments} doc comments")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
