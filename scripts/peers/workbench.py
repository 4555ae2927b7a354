"""Opens a toolbox of a workbench configuration and uses a tool of it, with the Python SDK's client.

usage: workbench.py PEGBOARD FILE
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(pegboard, file):
    # The SDK hands on only a few variables by itself.
    server = StdioServerParameters(command=pegboard, args=["serve", "--stdio", "--no-daemon"], env=dict(os.environ))
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        told = await session.initialize()
        print(told.instructions)
        opened = await session.call_tool("open_toolbox", {"toolbox": "dev"})
        document = json.loads(opened.content[0].text)
        print(document["servers_connected"], "servers:", *[tool["name"] for tool in document["tools"]])
        tool = {"toolbox": "dev", "server": "filesystem", "name": "read_text_file"}
        read = await session.call_tool("use_tool", {"tool": tool, "arguments": {"path": file}})
        print("read:", read.content[0].text)


asyncio.run(main(*sys.argv[1:]))
