"""The client of the Python SDK through the gateway: client.py PLAN ERA URL | client.py PLAN ERA PEGBOARD FILE.

Goes through the plan of every server, each at a profile of its name.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.types import CreateMessageResult, ElicitResult, ResourceUpdatedNotification, TextContent

MODES = {"session": ("legacy", "2025-11-25"), "stateless": ("auto", "2026-07-28")}
# Long enough for a busy machine; what does not come at all is an error.
PATIENCE = 20


async def accept(_context, params):
    asked = params.requested_schema["required"]
    article = lambda name: "an" if name[0] in "aeio" else "a"
    return ElicitResult(action="accept", content={name: f"{article(name)} {name}" for name in asked})


async def sample(_context, params):
    # In this era a message may have one content or several.
    content = params.messages[0].content
    text = (content[0] if isinstance(content, list) else content).text
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text=f"I heard: {text}"), model="none")


class Visitor:
    def __init__(self, label, client, updated):
        self.label, self.client, self.updated = label, client, updated

    def expect(self, step, found, wanted):
        if wanted not in found:
            sys.exit(f"{self.label}: {step['what']}: expected {wanted!r}, found {found!r}")
        print(f"ok {self.label}: {step['what']}", flush=True)

    async def call(self, step):
        heard = []

        async def hear(done, _total, _message):
            heard.append(done)

        result = await self.client.call_tool(step["tool"], step.get("arguments", {}), progress_callback=hear)
        if heard != step.get("progress", []):
            sys.exit(f"{self.label}: {step['what']}: progress was {heard}")
        return "\n".join(content.text for content in result.content if content.type == "text")

    async def call_and_hear(self, step, uri):
        if self.client.protocol_version == "2026-07-28":
            async with self.client.listen(resource_subscriptions=[uri]) as changes:
                said = await self.call(step)
                async with asyncio.timeout(PATIENCE):
                    event = await anext(aiter(changes))
            heard = event.uri
        else:
            await self.client.session.subscribe_resource(uri)
            said = await self.call(step)
            async with asyncio.timeout(PATIENCE):
                heard = await self.updated.get()
        if str(heard) != uri:
            sys.exit(f"{self.label}: {step['what']}: {heard} was updated")
        return said

    async def take(self, step):
        if uri := step.get("updates"):
            return await self.call_and_hear(step, uri)
        if "tool" in step:
            return await self.call(step)
        if prompt := step.get("prompt"):
            return (await self.client.get_prompt(prompt)).messages[0].content.text
        try:
            return (await self.client.read_resource(step["resource"])).contents[0].text
        except MCPError as error:
            return f"refused: {error.error.message}"

    async def go_through(self, steps):
        listed = {tool.name for tool in (await self.client.list_tools()).tools}
        listed |= {prompt.name for prompt in (await self.client.list_prompts()).prompts}
        listed |= {str(resource.uri) for resource in (await self.client.list_resources()).resources}
        for step in steps:
            name = step.get("tool") or step.get("prompt") or step["resource"]
            if (name in listed) == ("refuses" in step):
                sys.exit(f"{self.label}: {name} in the lists: {name in listed}")
        print(f"ok {self.label}: lists", flush=True)
        for step in steps:
            said = await self.take(step)
            self.expect(step, said, step.get("says") or "refused: ")
            if "refuses" in step:
                self.expect(step, said, step["refuses"])


async def main(plan, era, target, *file):
    mode, revision = MODES[era]
    with open(plan) as opened:
        plans = json.load(opened)
    for profile, steps in plans.items():
        # A name is the plan of another.
        steps = plans[steps] if isinstance(steps, str) else steps
        updated = asyncio.Queue()

        async def hear(message):
            if isinstance(message, ResourceUpdatedNotification):
                updated.put_nowait(message.params.uri)

        if file:
            arguments = ["serve", *file, "--stdio", "--no-daemon", "--profile", profile, "--no-watch"]
            server = StdioServerParameters(command=target, args=arguments)
        else:
            server = f"{target}/{profile}"
        callbacks = {"elicitation_callback": accept, "sampling_callback": sample, "message_handler": hear}
        async with Client(server, mode=mode, **callbacks) as client:
            label = f"{profile}, {era}"
            if client.protocol_version != revision:
                sys.exit(f"{label}: the revision is {client.protocol_version}")
            await Visitor(label, client, updated).go_through(steps)


asyncio.run(main(*sys.argv[1:]))
