// The client of the TypeScript SDK v1 against the fixture: client-v1.mjs PROGRAM URL, the URL being that of `/mcp`.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import WebSocket from "ws";

import { accept, exercise } from "./exercise.mjs";

// Node has one of its own from version 22 on.
globalThis.WebSocket ??= WebSocket;

const [program, url] = process.argv.slice(2);
const webSocketUrl = new URL("/ws", url.replace("http:", "ws:"));
const transports = {
    stdio: new StdioClientTransport({ command: program, args: ["stdio"] }),
    http: new StreamableHTTPClientTransport(new URL(url)),
    sse: new SSEClientTransport(new URL("/legacy/sse", url)),
    websocket: new WebSocketClientTransport(webSocketUrl),
};
for (const [name, transport] of Object.entries(transports)) {
    const client = new Client({ name: "v1", version: "1" }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, accept);
    await client.connect(transport);
    await exercise(name, client, (params, options) => client.callTool(params, undefined, options));
    await client.close();
}
