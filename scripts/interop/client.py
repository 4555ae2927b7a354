"""Clients of Python frameworks: client.py NAME URL. Uses every feature that a client has and prints what it gets as JSON.

The server is `fastmcp_server.py`, with or without Pegboard in front of it. Agents get a scripted model: the variable
PEER_MODEL has the address of one with the API of OpenAI.
"""

import asyncio
import json
import os
import sys
import warnings

# Long enough for a busy machine; what does not come at all is an error.
LIMIT_SECONDS = 25
asked = []
progress = []


def plain(value):
    """A value as JSON, without what belongs to one hop."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    elif hasattr(value, "__dataclass_fields__"):
        value = {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        hop = ("_meta", "meta", "metadata", "resultType", "ttlMs", "cacheScope", "id", "timestamp", "run_id")
        return {str(name): plain(part) for name, part in value.items() if name not in hop and part is not None}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value if isinstance(value, (str, int, float, bool)) else repr(value)


def by_name(items):
    return sorted((plain(item) for item in items), key=lambda item: item.get("name") or item.get("uri"))


async def elicit(message, result_type):
    asked.append(message)
    return result_type(action="accept", content={"name": "Ann"})


def sample(params, result_type, content_type):
    content = params.messages[0].content
    words = (content[0] if isinstance(content, list) else content).text
    asked.append(words)
    return result_type(role="assistant", model="none", content=content_type(type="text", text=f"I heard: {words}"))


async def on_progress(done, total, message=None, *_context):
    progress.append([done, total, message])


async def measure(features):
    outcomes = {}
    for name, feature in features.items():
        asked.clear()
        progress.clear()
        try:
            outcome = await asyncio.wait_for(feature(), LIMIT_SECONDS)
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            outcomes[name] = {"got": {"raised": words}} if name == "errors" else {"error": words}
            continue
        outcomes[name] = {"got": plain(outcome), "asked": list(asked), "progress": list(progress)}
    print(json.dumps(outcomes), flush=True)


def tools_of(call, names=()):
    """The features that are calls of tools. `call(name, arguments)` calls one."""
    steps = {
        "call": ("echo", {"message": "Grüße"}),
        "structured": ("add", {"a": 2, "b": 3}),
        "images": ("picture", {}),
        "errors": ("fail", {}),
        "elicitation": ("ask", {}),
        "sampling": ("compose", {}),
        "roots": ("roots", {}),
        "progress": ("count", {}),
    }
    return {name: lambda step=step: call(*step) for name, step in steps.items() if name in names}


BASIC = ("call", "structured", "images", "errors")


async def cancel(call):
    """Cancels a call in the middle, and then asks the server."""
    waiting = asyncio.ensure_future(call("wait", {}))
    while not progress:
        await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    progress.clear()
    return await call("was_cancelled", {})


async def langchain(url):
    from langchain_mcp_adapters.callbacks import Callbacks
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from mcp.types import ElicitResult

    async def on_elicitation(_context, params, _callback_context):
        return await elicit(params.message, ElicitResult)

    callbacks = Callbacks(on_progress=on_progress, on_elicitation=on_elicitation)
    client = MultiServerMCPClient({"peer": {"transport": "streamable_http", "url": url}}, callbacks=callbacks)
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(name, arguments):
        message = await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
        return {"content": message.content, "artifact": message.artifact, "status": message.status}

    async def listed():
        return by_name({"name": name, "schema": tool.args_schema} for name, tool in tools.items())

    async def resources():
        return [blob.as_string() for blob in await client.get_resources("peer", uris=["peer://text"])]

    async def prompts():
        return [message.content for message in await client.get_prompt("peer", "hello", arguments={"name": "Ann"})]

    calls = tools_of(call, (*BASIC, "elicitation", "progress"))
    await measure({"list": listed, **calls, "resources": resources, "prompts": prompts})


async def mcp_use(url):
    from mcp.types import CreateMessageResult, ElicitResult, Root, TextContent
    from mcp_use import MCPClient

    async def on_elicitation(_context, params):
        return await elicit(params.message, ElicitResult)

    async def on_sampling(_context, params):
        return sample(params, CreateMessageResult, TextContent)

    client = MCPClient(
        {"mcpServers": {"peer": {"url": url}}},
        elicitation_callback=on_elicitation,
        sampling_callback=on_sampling,
        roots=[Root(uri="file:///srv/peer", name="peer")],
    )
    session = await client.create_session("peer")

    async def listed():
        return by_name(await session.list_tools())

    async def resources():
        return [by_name(await session.list_resources()), await session.read_resource("peer://text")]

    async def prompts():
        return [by_name(await session.list_prompts()), await session.get_prompt("hello", {"name": "Ann"})]

    calls = tools_of(session.call_tool, (*BASIC, "elicitation", "sampling", "roots"))
    await measure({"list": listed, **calls, "resources": resources, "prompts": prompts})
    await client.close_all_sessions()


async def openai_agents(url):
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from agents.mcp import MCPServerStreamableHttp
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    async with MCPServerStreamableHttp({"url": url}, client_session_timeout_seconds=LIMIT_SECONDS) as server:

        async def listed():
            return by_name(await server.list_tools())

        async def resources():
            return [by_name((await server.list_resources()).resources), await server.read_resource("peer://text")]

        async def prompts():
            return [by_name((await server.list_prompts()).prompts), await server.get_prompt("hello", {"name": "Ann"})]

        async def agent():
            client = AsyncOpenAI(base_url=os.environ["PEER_MODEL"], api_key="none", max_retries=0)
            model = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
            run = await Runner.run(Agent(name="peer", model=model, mcp_servers=[server]), "Use the tools")
            return [run.final_output, [item.output for item in run.new_items if item.type == "tool_call_output_item"]]

        calls = tools_of(server.call_tool, BASIC)
        await measure({"list": listed, **calls, "resources": resources, "prompts": prompts, "agent": agent})


async def pydantic_ai(url):
    from mcp.types import CreateMessageResult, ElicitResult, TextContent
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.models.test import TestModel

    async def on_elicitation(message, *_rest):
        return await elicit(message, ElicitResult)

    async def on_sampling(messages, params, *_rest):
        return sample(params, CreateMessageResult, TextContent)

    options = {
        "elicitation_handler": on_elicitation,
        "sampling_handler": on_sampling,
        "progress_handler": on_progress,
        "roots": ["file:///srv/peer"],
        "tool_error_behavior": "error",
        "read_timeout": LIMIT_SECONDS,
    }
    async with MCPToolset(url, **options) as toolset:

        async def listed():
            return by_name(await toolset.list_tools())

        async def resources():
            return [by_name(await toolset.list_resources()), await toolset.read_resource("peer://text")]

        async def prompts():
            return [by_name(await toolset.list_prompts()), await toolset.get_prompt("hello", {"name": "Ann"})]

        # A model without a network calls the tools that it is told to call.
        async def agent():
            run = await Agent(TestModel(call_tools=["echo", "add"]), toolsets=[toolset]).run("Use the tools")
            return run.output

        calls = tools_of(toolset.direct_call_tool, (*BASIC, "elicitation", "sampling", "roots", "progress"))
        cancelling = {"cancel": lambda: cancel(toolset.direct_call_tool)}
        await measure({"list": listed, **calls, **cancelling, "resources": resources, "prompts": prompts, "agent": agent})


async def llama_index(url):
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
    from mcp.types import CreateMessageResult, TextContent

    async def on_sampling(_context, params):
        return sample(params, CreateMessageResult, TextContent)

    client = BasicMCPClient(url, timeout=LIMIT_SECONDS, sampling_callback=on_sampling)

    async def call(name, arguments):
        return await client.call_tool(name, arguments, progress_callback=on_progress)

    async def listed():
        tools = await McpToolSpec(client=client).to_tool_list_async()
        return by_name({"name": tool.metadata.name, "schema": tool.metadata.get_parameters_dict()} for tool in tools)

    async def resources():
        return [by_name((await client.list_resources()).resources), await client.read_resource("peer://text")]

    async def prompts():
        return [message.content for message in await client.get_prompt("hello", {"name": "Ann"})]

    calls = tools_of(call, (*BASIC, "sampling", "progress"))
    await measure({"list": listed, **calls, "resources": resources, "prompts": prompts})


async def smolagents(url):
    from smolagents import MCPClient

    # It is used from outside of an event loop.
    client = await asyncio.to_thread(MCPClient, {"url": url, "transport": "streamable-http"}, structured_output=True)
    tools = {tool.name: tool for tool in client.get_tools()}

    async def call(name, arguments):
        result = await asyncio.to_thread(tools[name], **arguments)
        return result if isinstance(result, (str, dict)) else getattr(result, "size", None) or result

    async def listed():
        return by_name({"name": name, "inputs": tool.inputs} for name, tool in tools.items())

    await measure({"list": listed, **tools_of(call, BASIC)})
    await asyncio.to_thread(client.disconnect)


warnings.simplefilter("ignore")
name, url = sys.argv[1:]
asyncio.run(globals()[name](url))
