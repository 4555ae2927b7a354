// Clients of TypeScript frameworks: interop-client.mjs NAME URL. Uses every feature that a client has and prints what it
// gets as JSON. The server is `fastmcp_server.py`, with or without Pegboard in front of it. No model takes part.
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { promisify } from "node:util";

const [name, url] = process.argv.slice(2);
// Long enough for a busy machine; what does not come at all is an error.
const LIMIT = 25_000;
let asked = [];
let progress = [];

const HOP = ["_meta", "meta", "metadata", "resultType", "ttlMs", "cacheScope"];
/** A value without what belongs to one hop. */
function plain(value) {
    if (Array.isArray(value)) return value.map(plain);
    if (value === null || typeof value !== "object") return value;
    const kept = Object.entries(value).filter(([key, part]) => !HOP.includes(key) && part !== undefined);
    return Object.fromEntries(kept.map(([key, part]) => [key, plain(part)]));
}
const byName = (items) => items.map(plain).sort((a, b) => (a.name ?? a.uri).localeCompare(b.name ?? b.uri));

async function measure(features) {
    const outcomes = {};
    for (const [feature, step] of Object.entries(features)) {
        asked = [];
        progress = [];
        const attempt = (async () => ({ got: plain(await step()), asked, progress }))().catch((error) => {
            const words = String(error?.message ?? error);
            return feature === "errors" ? { got: { raised: words } } : { error: words };
        });
        outcomes[feature] = await Promise.race([attempt, setTimeout(LIMIT, { error: "no answer" })]);
    }
    console.log(JSON.stringify(outcomes));
}

/** The features that are calls of tools. */
function calls(call, more = []) {
    const steps = {
        call: ["echo", { message: "Grüße" }],
        structured: ["add", { a: 2, b: 3 }],
        images: ["picture", {}],
        errors: ["fail", {}],
        elicitation: ["ask", {}],
        progress: ["count", {}],
    };
    const chosen = ["call", "structured", "images", "errors", ...more];
    return Object.fromEntries(chosen.map((feature) => [feature, () => call(...steps[feature])]));
}

function accept(params) {
    asked.push(params.message);
    return { action: "accept", content: { name: "Ann" } };
}

const CLIENTS = {
    async aiSdk() {
        const { createMCPClient, ElicitationRequestSchema } = await import("@ai-sdk/mcp");
        const client = await createMCPClient({ transport: { type: "http", url }, capabilities: { elicitation: {} } });
        client.onElicitationRequest(ElicitationRequestSchema, ({ params }) => accept(params));
        const tools = await client.tools();
        const call = (tool, args) => tools[tool].execute(args, { messages: [], toolCallId: "1" });
        await measure({
            list: async () => byName((await client.listTools()).tools),
            ...calls(call, ["elicitation"]),
            resources: async () => [
                byName((await client.listResources()).resources),
                await client.readResource({ uri: "peer://text" }),
            ],
            prompts: async () => [
                byName((await client.listPrompts()).prompts),
                await client.getPrompt({ name: "hello", arguments: { name: "Ann" } }),
            ],
        });
    },

    async mastra() {
        const { MCPClient } = await import("@mastra/mcp");
        const inputRequests = async ({ params }) => accept(params);
        const server = { url: new URL(url), inputRequests, timeout: LIMIT };
        const client = new MCPClient({ servers: { peer: server }, timeout: LIMIT });
        const tools = await client.listTools();
        const call = (tool, args) => tools[`peer_${tool}`].execute(args, {});
        await measure({
            list: async () => byName(Object.values(tools).map(({ id, description }) => ({ name: id, description }))),
            ...calls(call, ["elicitation"]),
            resources: async () => [
                byName((await client.resources.list()).peer),
                await client.resources.read("peer", "peer://text"),
            ],
            prompts: async () => [
                byName((await client.prompts.list()).peer),
                (await client.prompts.get({ serverName: "peer", name: "hello", args: { name: "Ann" } })).messages,
            ],
        });
        await client.disconnect();
    },

    /** The command line of mcporter. */
    async mcporter() {
        const program = join(import.meta.dirname, "node_modules/mcporter/dist/cli.js");
        const config = join(mkdtempSync(join(tmpdir(), "mcporter-")), "mcporter.json");
        writeFileSync(config, JSON.stringify({ mcpServers: { peer: { url } }, imports: [] }));
        const run = async (...args) => {
            const command = [program, "--config", config, ...args];
            const options = { timeout: LIMIT };
            const { stdout, code = 0 } = await promisify(execFile)(process.execPath, command, options).catch((error) => error);
            return { code, stdout: stdout.replaceAll(url, "URL") };
        };
        const call = (tool, args) => run("call", `peer.${tool}`, "--args", JSON.stringify(args), "--output", "json");
        await measure({
            list: async () => byName(JSON.parse((await run("list", "peer", "--json", "--schema")).stdout).tools),
            ...calls(call),
            resources: async () => [await run("resource", "peer"), await run("resource", "peer", "peer://text")],
        });
        rmSync(dirname(config), { recursive: true });
    },
};

await CLIENTS[name]();
// A transport that hangs must not keep the outcomes back.
process.exit(0);
