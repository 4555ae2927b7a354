"""A server on the Python SDK for our client: server.py stdio | http. With http it prints its address first."""

import asyncio
import socket
import sys
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve, Sample
from mcp.types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("python-peer")


@server.tool()
def echo(message: str) -> str:
    return f"Echo: {message}"


@server.tool()
async def count(context: Context) -> str:
    for done in (1, 2, 3):
        await context.report_progress(done, 3)
    return "Counted to three."


class Visitor(BaseModel):
    name: str


def ask_name() -> Elicit[Visitor]:
    return Elicit("What is your name?", Visitor)


@server.tool()
def greet(visitor: Annotated[Visitor, Resolve(ask_name)]) -> str:
    return f"Hello, {visitor.name}!"


def ask_model(topic: str) -> Sample:
    question = TextContent(type="text", text=f"A line about {topic}")
    return Sample([SamplingMessage(role="user", content=question)], max_tokens=20)


@server.tool()
def compose(topic: str, sampled: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    return f"Composed: {sampled.content.text}"


@server.tool()
async def touch(context: Context) -> str:
    await context.notify_resource_updated("peer://text")
    return "Touched."


@server.tool()
def stumble() -> str:
    raise ValueError("it stumbled")


@server.resource("peer://text")
def text() -> str:
    return "A text of the Python peer."


@server.prompt()
def hello() -> str:
    return "Say hello."


def serve_http():
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if sys.argv[1:] == ["http"]:
    serve_http()
else:
    server.run("stdio")
