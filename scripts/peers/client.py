"""The client of the Python SDK against the fixture: client.py PROGRAM URL, the URL being that of `/mcp`."""

import asyncio
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.types import ElicitResult

ANSWERS = {"username": "ada", "email": "ada@example.org", "name": "Ada", "color": "green"}
TOLD = 'User response: action: accept, content: {"username":"ada","email":"ada@example.org"}'


async def accept(_context, params):
    asked = params.requested_schema["properties"]
    return ElicitResult(action="accept", content={name: ANSWERS[name] for name in asked})


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")
    print(f"ok {what}", flush=True)


async def exercise(label, server, mode, revision):
    async with Client(server, mode=mode, elicitation_callback=accept) as client:
        async def text(name, arguments=None, **options):
            return (await client.call_tool(name, arguments or {}, **options)).content[0].text

        expect(f"{label}: the revision", client.protocol_version, revision)
        expect(f"{label}: the name", client.server_info.name, "pegboard-fixture")
        tools = {tool.name for tool in (await client.list_tools()).tools}
        expect(f"{label}: the tools", {"test_simple_text", "json_schema_2020_12_tool"} <= tools, True)
        simple = await text("test_simple_text")
        expect(f"{label}: a tool", simple, "This is a simple text response for testing.")

        progress = []

        async def hear(done, _total, _message):
            progress.append(done)

        await text("test_tool_with_progress", progress_callback=hear)
        expect(f"{label}: progress", progress, [0, 50, 100])
        told = await text("test_elicitation", {"message": "Who is there?"})
        expect(f"{label}: an elicitation", told, TOLD)
        colour = await text("test_input_required_result_multi_round")
        expect(f"{label}: two questions", colour, "Your favorite color is green.")
        resource = await client.read_resource("test://static-text")
        content = "This is the content of the static text resource."
        expect(f"{label}: a resource", resource.contents[0].text, content)
        prompt = await client.get_prompt("test_simple_prompt")
        message = "This is a simple prompt for testing."
        expect(f"{label}: a prompt", prompt.messages[0].content.text, message)
        try:
            refusal = await client.read_resource("test://nowhere")
        except MCPError as error:
            refusal = error.error.message
        expect(f"{label}: an error", refusal, "Resource not found")


async def main(program, url):
    pipe = StdioServerParameters(command=program, args=["stdio"])
    for name, server in [("stdio", pipe), ("http", url)]:
        await exercise(f"{name}, session", server, "legacy", "2025-11-25")
        await exercise(f"{name}, stateless", server, "auto", "2026-07-28")
    stream = sse_client(url.replace("/mcp", "/legacy/sse"))
    await exercise("sse, session", stream, "legacy", "2025-11-25")


asyncio.run(main(*sys.argv[1:]))
