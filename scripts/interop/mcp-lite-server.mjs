// A server on mcp-lite, with a tool for every feature of the protocol. It serves HTTP and prints its address first.
import http from "node:http";

import { InMemoryClientRequestAdapter, InMemorySessionAdapter, McpServer, StreamableHttpTransport } from "mcp-lite";
import { z } from "zod";

import { PIXEL, QUESTION } from "./peer.mjs";

const server = new McpServer({ name: "peer", version: "1.0.0", schemaAdapter: (schema) => z.toJSONSchema(schema) });
const text = (words) => ({ content: [{ type: "text", text: words }] });
const tool = (name, handler, more = {}) => server.tool(name, { description: `Tool ${name}`, handler, ...more });

tool("echo", ({ message }) => text(`Echo: ${message}`), { inputSchema: z.object({ message: z.string() }) });
tool("add", ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { sum: a + b } }), {
    inputSchema: z.object({ a: z.number(), b: z.number() }),
    outputSchema: z.object({ sum: z.number() }),
});
tool("picture", () => ({ content: [{ type: "image", data: PIXEL, mimeType: "image/png" }] }));
tool("fail", () => {
    throw new Error("It failed.");
});
tool("ask", async (_arguments, context) => {
    const { content } = await context.elicit({ message: QUESTION.message, schema: QUESTION.requestedSchema });
    return text(`Hello, ${content.name}!`);
});
tool("compose", async (_arguments, context) => {
    const { content } = await context.sample({ prompt: "A line about tea", maxTokens: 20 });
    return text(`Composed: ${content.text}`);
});
tool("count", async (_arguments, context) => {
    for (const progress of [1, 2, 3]) await context.progress({ progress, total: 3 });
    return text("Counted to three.");
});
server.resource("peer://text", { name: "text", mimeType: "text/plain" }, async (uri) => ({
    contents: [{ uri: uri.href, type: "text", mimeType: "text/plain", text: "A text of the peer." }],
}));
server.prompt("hello", {
    description: "Says hello",
    arguments: [{ name: "name", description: "A name", required: true }],
    handler: ({ name }) => ({ messages: [{ role: "user", content: { type: "text", text: `Say hello to ${name}.` } }] }),
});

const handle = new StreamableHttpTransport({
    sessionAdapter: new InMemorySessionAdapter({ maxEventBufferSize: 1024 }),
    clientRequestAdapter: new InMemoryClientRequestAdapter({ defaultTimeoutMs: 30_000 }),
}).bind(server);

/** Serves a function from `Request` to `Response`. */
async function serve(incoming, outgoing) {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const hasBody = chunks.length > 0;
    const headers = new Headers(Object.entries(incoming.headers));
    const closed = new AbortController();
    outgoing.on("close", () => closed.abort());
    const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
        method: incoming.method,
        headers,
        signal: closed.signal,
        ...(hasBody ? { body: Buffer.concat(chunks) } : {}),
    });
    const response = await handle(request);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.flushHeaders();
    if (response.body) for await (const chunk of response.body) outgoing.write(chunk);
    outgoing.end();
}

const listener = http.createServer((incoming, outgoing) => {
    serve(incoming, outgoing).catch((error) => {
        console.error(error);
        outgoing.destroy();
    });
});
listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
