"""A service that holds every request against its OpenAPI document, called through Pegboard with arguments that are made
from the schemas of the tools.

What the service reads from a request, with a library of its own, must be what the tool was given.

usage: openapi_service.py PEGBOARD FOLDER
"""

import asyncio
import json
import os
import re
import sys
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis_jsonschema import from_schema
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from openapi_core import OpenAPI
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers, ImmutableMultiDict

N_CALLS = 15
WORD = {"type": "string", "pattern": "^[a-zA-Z0-9]{1,8}$"}
# Everything that could end a value early, but for what ends an item of a list.
TEXT = {"type": "string", "pattern": "^[a-z0-9 /?&=#%+;:@é-]{1,12}$"}
WORDS = {"type": "array", "items": WORD, "minItems": 1, "maxItems": 4}
COLOR = {
    "type": "object",
    "properties": {"R": {"type": "integer"}, "G": {"type": "integer"}},
    "required": ["R", "G"],
    "additionalProperties": False,
}


def parameter(name, place, schema, **more):
    return {"name": name, "in": place, "required": True, "schema": schema, **more}


def operation(*parameters, body=None):
    described = {"parameters": list(parameters), "responses": {"200": {"description": "It was right"}}}
    if body:
        described["requestBody"] = {"required": True, "content": body}
    return described


def document(port):
    paths = {
        "/simple/{a}/{b}": {"get": operation(parameter("a", "path", TEXT), parameter("b", "path", WORDS))},
        "/label/{a}": {"get": operation(parameter("a", "path", WORDS, style="label", explode=True))},
        "/matrix/{a}": {"get": operation(parameter("a", "path", WORDS, style="matrix", explode=True))},
        "/form": {
            "get": operation(
                parameter("text", "query", TEXT),
                parameter("number", "query", {"type": "integer"}),
                parameter("yes", "query", {"type": "boolean"}),
                parameter("many", "query", WORDS),
                parameter("few", "query", WORDS, explode=False),
            )
        },
        "/delimited": {"get": operation(parameter("pipes", "query", WORDS, style="pipeDelimited", explode=False))},
        "/deep": {"get": operation(parameter("color", "query", COLOR, style="deepObject", explode=True))},
        "/headers": {
            "get": operation(
                parameter("X-Words", "header", WORDS),
                parameter("X-Number", "header", {"type": "integer"}),
                parameter("crumb", "cookie", WORD),
            )
        },
        "/json/{id}": {
            "put": operation(
                parameter("id", "path", TEXT),
                body={"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}},
            )
        },
        "/urlencoded": {
            "post": operation(
                body={
                    "application/x-www-form-urlencoded": {
                        "schema": {
                            "type": "object",
                            "properties": {"text": TEXT, "number": {"type": "integer"}, "many": WORDS},
                            "required": ["text", "number", "many"],
                            "additionalProperties": False,
                        }
                    }
                }
            )
        },
    }
    leaf = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "number", "nullable": True, "minimum": 0, "exclusiveMinimum": True},
            "made": {"type": "string", "readOnly": True, "enum": ["here"]},
        },
        "required": ["name", "made"],
        "additionalProperties": False,
    }
    child = {"$ref": "#/components/schemas/Leaf"}
    node = {
        "type": "object",
        "properties": {"first": child, "rest": {"type": "array", "items": child, "maxItems": 2}},
        "required": ["first"],
        "additionalProperties": False,
    }
    return {
        "openapi": "3.0.3",
        "info": {"title": "Everything", "version": "1"},
        "servers": [{"url": f"http://127.0.0.1:{port}/v1"}],
        "paths": paths,
        "components": {"schemas": {"Node": node, "Leaf": leaf}},
    }


class Received:
    """A request, as the library wants it."""

    def __init__(self, handler, templates):
        url = urlsplit(handler.path)
        raw = url.path.removeprefix("/v1")
        self.host_url = f"http://{handler.headers['host']}"
        self.method = handler.command.lower()
        self.path_pattern, values = next(
            (f"/v1{template}", match.groupdict())
            for template, match in ((template, pattern.fullmatch(raw)) for template, pattern in templates)
            if match
        )
        self.path = unquote(url.path)
        self.content_type = handler.headers.get("content-type", "")
        self.body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        cookies = (cookie.strip().split("=", 1) for cookie in handler.headers.get("cookie", "").split(";") if cookie)
        self.parameters = RequestParameters(
            # The library looks for values with a label or a matrix under names of their own.
            path={
                f"{mark}{name}{star}": unquote(value, errors="strict")
                for name, value in values.items()
                for mark in ("", ".", ";")
                for star in ("", "*")
            },
            query=ImmutableMultiDict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query))),
            header=Headers(handler.headers.items()),
            cookie=ImmutableMultiDict((name, unquote(value)) for name, value in cookies),
        )


def serve():
    """Starts the service. It answers with what it read from a request, or with what is wrong with it."""
    checks = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            try:
                result = checks["api"].unmarshal_request(Received(self, checks["templates"]))
                result.raise_for_errors()
                read = {}
                for place in ("path", "query", "header", "cookie"):
                    read.update(getattr(result.parameters, place))
                if result.body is not None:
                    read["body"] = result.body
                status, text = 200, json.dumps(read, default=vars)
            except Exception as error:
                status, text = 400, f"{type(error).__name__}: {error} {error.__cause__!r}"
            body = text.encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    described = document(server.server_port)
    checks["api"] = OpenAPI.from_dict(described)
    checks["templates"] = [
        (template, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template))) for template in described["paths"]
    ]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return described


def examples_of(schema):
    """Arguments that the schema of a tool takes."""
    made = []

    @settings(
        max_examples=N_CALLS,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(from_schema(schema))
    def make(arguments):
        made.append(arguments)

    make()
    return made


def trimmed(value):
    """What a request holds: a library tells members that are not there as nothing."""
    if isinstance(value, dict):
        return {name: trimmed(member) for name, member in value.items() if member is not None}
    return [trimmed(item) for item in value] if isinstance(value, list) else value


async def main(pegboard, folder):
    described = serve()
    with open(f"{folder}/service.json", "w") as file:
        json.dump(described, file)
    with open(f"{folder}/pegboard.json", "w") as file:
        # A document may not name a private host by itself.
        service = {"spec": "service.json", "baseUrl": described["servers"][0]["url"]}
        json.dump({"openapiSpecs": {"all": service}}, file)
    arguments = ["serve", f"{folder}/pegboard.json", "--stdio", "--no-daemon", "--profile", "flat"]
    # The SDK hands on only a few variables by itself.
    server = StdioServerParameters(command=pegboard, args=arguments, env=dict(os.environ))
    n_calls, wrong = 0, []
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        tools = [tool for tool in (await session.list_tools()).tools if tool.name.startswith("all__")]
        assert len(tools) == len(described["paths"]), [tool.name for tool in tools]
        for tool in tools:
            schema = getattr(tool, "inputSchema", None) or tool.input_schema
            for given_arguments in examples_of(schema):
                result = await session.call_tool(tool.name, given_arguments)
                n_calls += 1
                text = result.content[0].text
                is_error = getattr(result, "isError", None) or getattr(result, "is_error", None)
                if is_error or trimmed(json.loads(text)) != trimmed(given_arguments):
                    wrong.append(f"{tool.name} was given {given_arguments!r}, and the service read {text}")
    print(*wrong[:20], sep="\n")
    print(f"{len(tools)} tools, {n_calls} calls, {len(wrong)} wrong")
    assert n_calls > 50, "hardly anything was called"
    if not wrong:
        print("every request was right")
    sys.exit(bool(wrong))


warnings.filterwarnings("ignore")
asyncio.run(main(*sys.argv[1:]))
