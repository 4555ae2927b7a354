// A server on the TypeScript SDK 2, with a tool for every feature of the protocol. It serves stdio, in both eras.
import { setTimeout } from "node:timers/promises";

import { inputRequired, McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

import { PIXEL, QUESTION, waitFor } from "./peer.mjs";

let cancelled = false;

function makeServer() {
    const server = new McpServer({ name: "peer", version: "1.0.0" });
    const text = (words) => ({ content: [{ type: "text", text: words }] });
    const tool = (name, inputSchema, execute, more = {}) =>
        server.registerTool(name, { description: `Tool ${name}`, inputSchema: z.object(inputSchema), ...more }, execute);
    const progress = (context, done, total) =>
        context.mcpReq.notify({
            method: "notifications/progress",
            params: { progressToken: context.mcpReq._meta?.progressToken, progress: done, total },
        });

    tool("echo", { message: z.string() }, async ({ message }) => text(`Echo: ${message}`));
    tool("add", { a: z.number(), b: z.number() }, async ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { sum: a + b } }), {
        outputSchema: z.object({ sum: z.number() }),
    });
    tool("picture", {}, async () => ({ content: [{ type: "image", data: PIXEL, mimeType: "image/png" }] }));
    tool("fail", {}, async () => {
        throw new Error("It failed.");
    });
    // Imperative, as in the session era.
    tool("ask", {}, async (_arguments, context) => {
        const { content } = await context.mcpReq.elicitInput({ mode: "form", ...QUESTION });
        return text(`Hello, ${content.name}!`);
    });
    tool("compose", {}, async (_arguments, context) => {
        const messages = [{ role: "user", content: { type: "text", text: "A line about tea" } }];
        const { content } = await context.mcpReq.requestSampling({ messages, maxTokens: 20 });
        return text(`Composed: ${content.text}`);
    });
    // As a result, as in the stateless era; the SDK sends it as a request in the other.
    tool("roots", {}, async (_arguments, context) => {
        const answer = context.mcpReq.inputResponses?.roots;
        return answer
            ? text(`Roots: ${JSON.stringify(answer.roots)}`)
            : inputRequired({ inputRequests: { roots: { method: "roots/list", params: {} } } });
    });
    tool("count", {}, async (_arguments, context) => {
        for (const done of [1, 2, 3]) await progress(context, done, 3);
        return text("Counted to three.");
    });
    tool("wait", {}, async (_arguments, context) => {
        await progress(context, 1, 2);
        try {
            await setTimeout(30_000, undefined, { signal: context.mcpReq.signal });
        } catch (error) {
            cancelled = true;
            throw error;
        }
        return text("Nobody cancelled.");
    });
    tool("was_cancelled", {}, async () => {
        await waitFor(() => cancelled);
        return text("It was cancelled.");
    });
    server.registerResource("text", "peer://text", { mimeType: "text/plain" }, async (uri) => ({
        contents: [{ uri: uri.href, mimeType: "text/plain", text: "A text of the peer." }],
    }));
    server.registerPrompt("hello", { description: "Says hello", argsSchema: z.object({ name: z.string() }) }, ({ name }) => ({
        messages: [{ role: "user", content: { type: "text", text: `Say hello to ${name}.` } }],
    }));
    return server;
}

serveStdio(makeServer);
