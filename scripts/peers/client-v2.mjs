// The client of the TypeScript SDK v2 against the fixture: client-v2.mjs PROGRAM URL, the URL being that of `/mcp`.
import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { accept, exercise } from "./exercise.mjs";

const [program, url] = process.argv.slice(2);
const transports = {
    stdio: () => new StdioClientTransport({ command: program, args: ["stdio"] }),
    http: () => new StreamableHTTPClientTransport(new URL(url)),
};
const revisions = { legacy: "2025-11-25", auto: "2026-07-28" };
for (const [name, transport] of Object.entries(transports)) {
    for (const [mode, revision] of Object.entries(revisions)) {
        const options = { capabilities: { elicitation: {} }, versionNegotiation: { mode } };
        const client = new Client({ name: "v2", version: "1" }, options);
        client.setRequestHandler("elicitation/create", accept);
        await client.connect(transport());
        assert.equal(client.getNegotiatedProtocolVersion(), revision);
        await exercise(`${name}, ${revision}`, client, (params, options) => client.callTool(params, options));
        await client.close();
    }
}
