"""The published page of the conformance grid."""

ERAS = {"session": "session (2025-11-25)", "stateless": "stateless (2026-07-28)"}
SERVERS = {
    "session": "the fixture, session era",
    "stateless": "the fixture, stateless era",
    "dual": "the fixture, both eras",
    "fastmcp": "FastMCP 4, both eras",
    "python": "Python SDK 2, both eras",
    "typescript": "TypeScript SDK 2, both eras",
}
SURFACES = ["flat", "meta", "agent"]

OPENING = """# Conformance

Results of the official conformance suite, run against a server directly and then through Pegboard in front of it. A check
passes if everything that passes directly also passes through Pegboard. `scripts/conformance.sh` runs the suite and writes
this page.

The *fixture* is a server of this project that passes every check directly, in one era or in both. The other servers are
written with third-party SDKs, and speak both eras. *Dedicated* is `shared: false`: each session has an instance of its own.
In the profile `flat` (`transparent`) the suite calls tools by their names. In `meta` and `agent` a small proxy,
`scripts/conformance/adapter.mjs`, turns a call into `use_tool`, or into a call of the server's tool with a `mode`, and the
list of tools into that of `open_toolbox`.

## Results

| client | server | over | profile | checks passed | of | excepted |
|---|---|---|---|---|---|---|"""

CLOSING = """
## Other servers and clients

`scripts/interop.sh` compares servers and clients of other projects with and without Pegboard between them: lists, calls,
structured content, images, errors, elicitation, sampling, roots, progress, cancellation, state, resources and prompts, as
far as each has them.

| | |
|---|---|
| servers, in both eras | FastMCP 4 and 2, fastmcp for TypeScript, TypeScript SDK 2, tmcp, mcp-lite, sequential-thinking, server-filesystem, kubernetes-mcp-server (Go), Azure MCP (.NET) |
| clients | LangChain, mcp-use, smolagents, openai-agents, pydantic-ai, LlamaIndex, AI SDK, Mastra, mcporter |

The known differences are in `scripts/interop/exceptions.json`, with reasons.
"""


def write_page(file, cells, exceptions):
    lines = [OPENING]
    for cell in cells:
        over = f"{cell.transport}, {cell.note}" if cell.note else cell.transport
        total = len(cell.passed) + len(cell.excused)
        columns = [ERAS[cell.client], SERVERS[cell.server], over, cell.surface, len(cell.passed), total, len(cell.excused)]
        lines.append(f"| {' | '.join(map(str, columns))} |")
    lines += ["", "## Exceptions", ""]
    lines += [f"{number}. {entry['reason']}" for number, entry in enumerate(exceptions, 1)]
    if not exceptions:
        lines.append("None.")
    lines += [
        "",
        "## Checks",
        "",
        "For each check, the servers with which it passes, by profile: *all*, or all but those with the number of an exception.",
    ]
    for client, words in ERAS.items():
        lines += ["", f"### Clients of the {words.split()[0]} era", ""]
        lines += check_table([cell for cell in cells if cell.client == client])
    file.write_text("\n".join([*lines, CLOSING]))


def check_table(cells):
    checks = sorted({check for cell in cells for check in [*cell.passed, *cell.excused]})
    columns = {surface: [cell for cell in cells if cell.surface == surface] for surface in SURFACES}
    yield f"| check | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for check in checks:
        yield f"| `{check}` | {' | '.join(outcome(check, column) for column in columns.values())} |"


def outcome(check, cells):
    tried = [cell for cell in cells if check in cell.passed or check in cell.excused]
    failed = [f"{cell.toolbox.replace('-', ' ')} ({cell.excused[check]})" for cell in tried if check in cell.excused]
    if not tried:
        return "–"
    if not failed:
        return "all"
    if len(failed) == len(tried):
        numbers = sorted({cell.excused[check] for cell in tried})
        return f"none ({', '.join(map(str, numbers))})"
    return f"all but {', '.join(failed)}"
