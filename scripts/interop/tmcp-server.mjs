// A server on tmcp, with a tool for every feature of the protocol. It serves stdio, in both eras.
import { ZodJsonSchemaAdapter } from "@tmcp/adapter-zod";
import { StdioTransport } from "@tmcp/transport-stdio";
import { McpServer } from "tmcp";
import { z } from "zod";

import { PIXEL } from "./peer.mjs";

const server = new McpServer(
    { name: "peer", version: "1.0.0", description: "A peer" },
    { adapter: new ZodJsonSchemaAdapter(), capabilities: { tools: {}, prompts: {}, resources: {} } },
);
const text = (words) => ({ content: [{ type: "text", text: words }] });
const tool = (name, schema, execute, more = {}) =>
    server.tool({ name, description: `Tool ${name}`, ...(schema ? { schema } : {}), ...more }, execute);

tool("echo", z.object({ message: z.string() }), async ({ message }) => text(`Echo: ${message}`));
tool(
    "add",
    z.object({ a: z.number(), b: z.number() }),
    async ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { sum: a + b } }),
    { outputSchema: z.object({ sum: z.number() }) },
);
tool("picture", undefined, async () => ({ content: [{ type: "image", data: PIXEL, mimeType: "image/png" }] }));
tool("fail", undefined, async () => ({ isError: true, ...text("It failed.") }));
// A replayable tool asks with a result in the stateless era.
const replayable = { replayable: true };
tool(
    "ask",
    undefined,
    async () => {
        const { content } = await server.elicitation("What is your name?", z.object({ name: z.string() }));
        return text(`Hello, ${content.name}!`);
    },
    replayable,
);
tool(
    "compose",
    undefined,
    async () => {
        const messages = [{ role: "user", content: { type: "text", text: "A line about tea" } }];
        const { content } = await server.message({ messages, maxTokens: 20 });
        return text(`Composed: ${content.text}`);
    },
    replayable,
);
tool("roots", undefined, async () => {
    await server.refreshRoots();
    return text(`Roots: ${JSON.stringify(server.roots)}`);
});
tool("count", undefined, async () => {
    for (const done of [1, 2, 3]) await server.progress(done, 3);
    return text("Counted to three.");
});
server.resource({ name: "text", description: "A text", uri: "peer://text" }, async (uri) => ({
    contents: [{ uri, mimeType: "text/plain", text: "A text of the peer." }],
}));
server.prompt({ name: "hello", description: "Says hello", schema: z.object({ name: z.string() }) }, async ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Say hello to ${name}.` } }],
}));
new StdioTransport(server).listen();
