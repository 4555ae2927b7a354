// A server on fastmcp for TypeScript, with a tool for every feature of the protocol. It serves stdio.
import { setTimeout } from "node:timers/promises";

import { FastMCP, imageContent, UserError } from "fastmcp";
import { z } from "zod";

import { PIXEL, QUESTION, waitFor } from "./peer.mjs";

const server = new FastMCP({ name: "peer", version: "1.0.0" });
let cancelled = false;
const tool = (name, execute, more = {}) => server.addTool({ name, description: `Tool ${name}`, execute, ...more });

tool("echo", async ({ message }) => `Echo: ${message}`, { parameters: z.object({ message: z.string() }) });
tool(
    "add",
    async ({ a, b }) => ({ content: [{ type: "text", text: `${a + b}` }], structuredContent: { sum: a + b } }),
    { parameters: z.object({ a: z.number(), b: z.number() }), outputSchema: z.object({ sum: z.number() }) },
);
tool("picture", async () => imageContent({ buffer: Buffer.from(PIXEL, "base64") }));
tool("fail", async () => {
    throw new UserError("It failed.");
});
tool("ask", async (_arguments, { elicit }) => {
    const { content } = await elicit(QUESTION);
    return `Hello, ${content.name}!`;
});
tool("compose", async () => {
    const [session] = server.sessions;
    const messages = [{ role: "user", content: { type: "text", text: "A line about tea" } }];
    const { content } = await session.requestSampling({ messages, maxTokens: 20 });
    return `Composed: ${content.text}`;
});
tool("roots", async () => `Roots: ${JSON.stringify(server.sessions[0].roots)}`);
tool("count", async (_arguments, { reportProgress }) => {
    for (const progress of [1, 2, 3]) await reportProgress({ progress, total: 3 });
    return "Counted to three.";
});
tool("wait", async (_arguments, { reportProgress, signal }) => {
    await reportProgress({ progress: 1, total: 2 });
    try {
        await setTimeout(30_000, undefined, { signal });
    } catch (error) {
        cancelled = true;
        throw error;
    }
    return "Nobody cancelled.";
});
tool("was_cancelled", async () => {
    await waitFor(() => cancelled);
    return "It was cancelled.";
});
server.addResource({ uri: "peer://text", name: "text", mimeType: "text/plain", load: async () => ({ text: "A text of the peer." }) });
server.addPrompt({
    name: "hello",
    description: "Says hello",
    arguments: [{ name: "name", description: "A name", required: true }],
    load: async ({ name }) => `Say hello to ${name}.`,
});
server.start({ transportType: "stdio" });
