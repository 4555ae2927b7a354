"""A server on FastMCP, with a tool for every feature of the protocol: fastmcp_server.py [http].

With `http` it prints its address first, otherwise it serves stdio. It runs on FastMCP 2, which speaks the session era, and on FastMCP 4, which speaks both.
"""

import asyncio
import socket
import sys

import mcp.types as types
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image
from pydantic import BaseModel

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6364f8cf500f00038601805a347d6b0000000049454e44ae426082"
)
server = FastMCP("peer")
cancelled = asyncio.Event()


class Sum(BaseModel):
    sum: int


@server.tool
def echo(message: str) -> str:
    return f"Echo: {message}"


@server.tool
def add(a: int, b: int) -> Sum:
    return Sum(sum=a + b)


@server.tool
def picture() -> Image:
    return Image(data=PIXEL, format="png")


@server.tool
def fail() -> str:
    raise ValueError("It failed.")


@server.tool
async def ask(context: Context) -> str:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = await context.session.elicit("What is your name?", schema, related_request_id=context.request_id)
    return f"Hello, {answer.content['name']}!"


@server.tool
async def compose(context: Context) -> str:
    question = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="A line about tea"))
    answer = await context.session.create_message([question], max_tokens=20, related_request_id=context.request_id)
    return f"Composed: {answer.content.text}"


@server.tool
async def roots(context: Context) -> str:
    return f"Roots: {[str(root.uri) for root in (await context.session.list_roots()).roots]}"


@server.tool
async def count(context: Context) -> str:
    for done in (1, 2, 3):
        await context.report_progress(done, 3, f"step {done}")
    return "Counted to three."


@server.tool
async def wait(context: Context) -> str:
    await context.report_progress(1, 2)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        cancelled.set()
        raise
    return "Nobody cancelled."


@server.tool
async def was_cancelled() -> str:
    await asyncio.wait_for(cancelled.wait(), 10)
    return "It was cancelled."


@server.tool
async def remember(value: str, context: Context) -> str:
    found = context.set_state("value", value)
    if asyncio.iscoroutine(found):
        await found
    return "Remembered."


@server.tool
async def recall(context: Context) -> str:
    found = context.get_state("value")
    if asyncio.iscoroutine(found):
        found = await found
    return f"Recalled: {found}"


@server.resource("peer://text", mime_type="text/plain")
def text() -> str:
    return "A text of the peer."


@server.prompt
def hello(name: str) -> str:
    return f"Say hello to {name}."


def serve_http():
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.http_app(), log_level="warning")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if sys.argv[1:] == ["http"]:
    serve_http()
else:
    server.run("stdio", show_banner=False)
