"""The tools, resources and prompts of the conformance suite, on a Python framework that speaks both eras.

usage: python_server.py fastmcp|mcp [http]    with `http` it prints its address first, otherwise it serves stdio
"""

import asyncio
import base64
import json
import socket
import sys

import uvicorn
from mcp.types import (
    AudioContent,
    CallToolResult,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)

framework, *transport = sys.argv[1:]
if framework == "fastmcp":
    from fastmcp import Context, FastMCP
    from fastmcp.prompts import Message
    from fastmcp.tools.base import ToolResult

    server = FastMCP("fastmcp")
    content_result = lambda content: ToolResult(content=content)
else:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.prompts.base import UserMessage as Message

    server = MCPServer("python")
    content_result = lambda content: CallToolResult(content=content)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0@\x1f\0\0@\x1f\0\0\x01\0\x08\0data\0\0\0\0").decode()
IMAGE = ImageContent(type="image", data=PIXEL, mime_type="image/png")


def tool(function):
    return server.tool(description=f"The conformance suite's {function.__name__}")(function)


def prompt(function):
    return server.prompt(description=f"The conformance suite's {function.__name__}")(function)


def text(words):
    return TextContent(type="text", text=words)


def resource(uri, mime_type, words):
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=words))


@tool
def test_simple_text() -> str:
    return "This is a simple text response for testing."


@tool
def test_image_content():
    return content_result([IMAGE])


@tool
def test_audio_content():
    return content_result([AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")])


@tool
def test_embedded_resource():
    return content_result([resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")])


@tool
def test_multiple_content_types():
    mixed = resource("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123}))
    return content_result([text("Multiple content types test:"), IMAGE, mixed])


async def log(context):
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.info(line)
    return "Three lines were logged."


@tool
async def test_tool_with_logging(context: Context) -> str:
    return await log(context)


@tool
async def test_logging_tool(context: Context) -> str:
    return await log(context)


@tool
async def test_tool_with_progress(context: Context) -> str:
    for done in (0, 50, 100):
        await context.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return "Progress was made."


@tool
def test_error_handling() -> str:
    raise ValueError("This tool intentionally returns an error for testing")


# Input requests of the session era: imperative, in the middle of the call.


def sample(words, limit):
    messages = [SamplingMessage(role="user", content=text(words))]
    return CreateMessageRequestParams(messages=messages, max_tokens=limit)


@tool
async def test_sampling(prompt: str, context: Context) -> str:
    params = sample(prompt, 100)
    result = await context.session.create_message(
        params.messages, max_tokens=100, related_request_id=context.request_id
    )
    return f"LLM response: {result.content.text}"


async def elicit(context, message, properties, required):
    schema = {"type": "object", "properties": properties, "required": required}
    answer = await context.session.elicit(message, schema, related_request_id=context.request_id)
    return f"action={answer.action}, content={json.dumps(answer.content)}"


@tool
async def test_elicitation(message: str, context: Context) -> str:
    properties = {name: {"type": "string", "description": name} for name in ("username", "email")}
    return f"User response: {await elicit(context, message, properties, list(properties))}"


@tool
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return f"Elicitation completed: {await elicit(context, 'Please review these values', properties, [])}"


@tool
async def test_elicitation_sep1330_enums(context: Context) -> str:
    titled = [{"const": f"value{number}", "title": f"Title {number}"} for number in (1, 2, 3)]
    options = ["option1", "option2", "option3"]
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return f"Elicitation completed: {await elicit(context, 'Please choose', properties, [])}"


# Input requests of the stateless era: the result of the call, which the client repeats.


def form(message, name, kind="string"):
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def question(words, limit=50):
    return CreateMessageRequest(params=sample(words, limit))


def ask(state=None, **requests):
    return InputRequiredResult(input_requests=requests, request_state=state)


def accepted(context, name, field):
    answer = (context.input_responses or {}).get(name)
    return (answer.content or {}).get(field) if answer is not None and answer.action == "accept" else None


@tool
async def test_input_required_result_elicitation(context: Context) -> str | InputRequiredResult:
    name = accepted(context, "user_name", "name")
    return f"Hello, {name}!" if name else ask(user_name=form("What is your name?", "name"))


@tool
async def test_streaming_elicitation(context: Context) -> str | InputRequiredResult:
    name = accepted(context, "user_name", "name")
    return f"Hello, {name}!" if name else ask(user_name=form("What is your name?", "name"))


# Tools that other servers turn into tasks; here they answer at once.


@tool
def greet(name: str) -> str:
    return f"Hello, {name}!"


@tool
def confirm_delete(filename: str) -> str:
    return f"Deleted {filename}."


@tool
def slow_compute(seconds: float = 0) -> str:
    return f"Computed for {seconds} s."


@tool
async def test_input_required_result_sampling(context: Context) -> str | InputRequiredResult:
    answer = (context.input_responses or {}).get("capital_question")
    return answer.content.text if answer else ask(capital_question=question("What is the capital of France?", 100))


@tool
async def test_input_required_result_list_roots(context: Context) -> str | InputRequiredResult:
    answer = (context.input_responses or {}).get("client_roots")
    return f"Roots: {[str(root.uri) for root in answer.roots]}" if answer else ask(client_roots=ListRootsRequest())


@tool
async def test_input_required_result_request_state(context: Context) -> str | InputRequiredResult:
    if accepted(context, "confirm", "ok") is not None and context.request_state == "round 1":
        return "state-ok"
    return ask("round 1", confirm=form("Please confirm", "ok", "boolean"))


@tool
async def test_input_required_result_tampered_state(context: Context) -> str | InputRequiredResult:
    if accepted(context, "confirm", "ok") is not None and context.request_state == "round 1":
        return "state-ok"
    return ask("round 1", confirm=form("Please confirm", "ok", "boolean"))


@tool
async def test_input_required_result_multiple_inputs(context: Context) -> str | InputRequiredResult:
    requests = {
        "user_name": form("What is your name?", "name"),
        "greeting": question("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    answered = requests.keys() <= (context.input_responses or {}).keys()
    return "All answers are here." if answered else ask("several", **requests)


@tool
async def test_input_required_result_multi_round(context: Context) -> str | InputRequiredResult:
    if context.request_state == "step 2" and (color := accepted(context, "step2", "color")):
        return f"Your favorite color is {color}."
    if context.request_state == "step 1" and accepted(context, "step1", "name"):
        return ask("step 2", step2=form("Step 2: What is your favorite color?", "color"))
    return ask("step 1", step1=form("Step 1: What is your name?", "name"))


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return base64.b64decode(PIXEL)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    return "Watched."


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@prompt
def test_simple_prompt() -> str:
    return "This is a simple prompt for testing."


@prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:
    embedded = resource(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [Message(embedded), Message("Please process the embedded resource above.")]


@prompt
def test_prompt_with_image() -> list[Message]:
    return [Message(IMAGE), Message("Please analyze the image above.")]


if framework == "mcp":

    @server.completion()
    async def complete(_ref, _argument, _context) -> Completion:
        return Completion(values=["first", "second"], total=2, has_more=False)


def serve_http():
    listener = socket.create_server(("127.0.0.1", 0))
    app = server.http_app() if framework == "fastmcp" else server.streamable_http_app()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener]))


if transport == ["http"]:
    serve_http()
elif framework == "fastmcp":
    server.run("stdio", show_banner=False)
else:
    server.run("stdio")
