// Uses every feature of a server and prints what it gets as JSON: probe.mjs ERA PLAN TARGET.
// ERA is `session` or `stateless`: the revision that is asked for; a server that has only the other is used in that.
// PLAN names a tool, a resource or a prompt for each feature. TARGET is `{"url"}` or `{"command", "args", "env"}`.
import { setTimeout } from "node:timers/promises";

const [era, planText, targetText] = process.argv.slice(2);
const plan = JSON.parse(planText);
const target = JSON.parse(targetText);
// Long enough for a busy machine; what does not come at all is an error.
const LIMIT = 25_000;
/// A Python server takes long to start beside others.
const START_LIMIT = 60_000;

const capabilities = { elicitation: { form: {} }, sampling: {}, roots: { listChanged: true } };
/** What the server has asked for during the present feature. */
let asked = [];

function accept({ params }) {
    asked.push({ method: "elicitation/create", message: params.message, schema: params.requestedSchema });
    const values = Object.entries(params.requestedSchema.properties).filter(([name]) =>
        (params.requestedSchema.required ?? []).includes(name));
    const value = ([name, { type, enum: choices }]) => choices?.[0] ?? (type === "string" ? `a ${name}` : type === "boolean" ? true : 5);
    return { action: "accept", content: Object.fromEntries(values.map((entry) => [entry[0], value(entry)])) };
}

function sample({ params }) {
    const content = [params.messages[0].content].flat()[0];
    asked.push({ method: "sampling/createMessage", text: content.text, maxTokens: params.maxTokens });
    return { role: "assistant", model: "none", content: { type: "text", text: `I heard: ${content.text}` } };
}

// The server may ask for roots when it likes, so that is not recorded.
const roots = () => ({ roots: [{ uri: `file://${process.env.PEER_ROOT}`, name: "peer" }] });

/** What is different in the two SDKs. */
async function connectWith(module, stdio, http, make, methods) {
    const client = make(module);
    [accept, sample, roots].forEach((handler, index) => client.setRequestHandler(methods[index], handler));
    const { StdioClientTransport } = await import(stdio);
    const { StreamableHTTPClientTransport } = await import(http);
    const { url, ...command } = target;
    const environment = { ...process.env, ...command.env };
    const transport = url
        ? new StreamableHTTPClientTransport(new URL(url))
        : new StdioClientTransport({ ...command, env: environment, stderr: "ignore" });
    await client.connect(transport, { timeout: START_LIMIT });
    return client;
}

async function connect() {
    const info = { name: "probe", version: "1" };
    if (era === "session") {
        const base = "@modelcontextprotocol/sdk";
        const { Client } = await import(`${base}/client/index.js`);
        const types = await import(`${base}/types.js`);
        const methods = [types.ElicitRequestSchema, types.CreateMessageRequestSchema, types.ListRootsRequestSchema];
        const make = () => new Client(info, { capabilities });
        const client = await connectWith(types, `${base}/client/stdio.js`, `${base}/client/streamableHttp.js`, make, methods);
        return { client, call: (params, options) => client.callTool(params, undefined, options) };
    }
    const base = "@modelcontextprotocol/client";
    const module = await import(base);
    const methods = ["elicitation/create", "sampling/createMessage", "roots/list"];
    const make = ({ Client }) => new Client(info, { capabilities, versionNegotiation: { mode: "auto" } });
    const client = await connectWith(module, `${base}/stdio`, base, make, methods);
    return { client, call: (params, options) => client.callTool(params, options) };
}

const { client, call } = await connect();
/** Progress of the present call, as it arrives: both SDKs may lose what arrives together with the result. */
let progress = [];
let onProgress = () => {};
const { onmessage } = client.transport;
client.transport.onmessage = (message, extra) => {
    if (message.method === "notifications/progress") {
        const { progressToken: _, _meta, ...rest } = message.params;
        progress.push(rest);
        onProgress();
    }
    onmessage(message, extra);
};

/** A result without what belongs to one hop, and images as their length. */
function plain({ _meta, resultType, ttlMs, cacheScope, ...result }) {
    const shorten = (content) => (content.data ? { ...content, data: `${content.data.length} characters` } : content);
    if (Array.isArray(result.content)) result.content = result.content.map(({ _meta, ...content }) => shorten(content));
    return result;
}

/** Calls a tool, again and again while the result does not have the text of `until`. */
async function callTool({ tool, arguments: args = {}, until = "" }) {
    let result = await callOnce(tool, args);
    for (let n = 0; !JSON.stringify(result).includes(until) && n < 100; n += 1) {
        await setTimeout(50);
        result = await callOnce(tool, args);
    }
    return result;
}

async function callOnce(tool, args) {
    const result = await call({ name: tool, arguments: args }, { timeout: LIMIT, onprogress: () => {} });
    return { ...plain(result), ...(progress.length ? { progress } : {}), ...(asked.length ? { asked } : {}) };
}

const byName = (a, b) => (a.name ?? a.uri).localeCompare(b.name ?? b.uri);
const FEATURES = {
    list: async () => (await client.listTools()).tools.map(({ _meta, ...tool }) => tool).sort(byName),
    resources: async (uri) => {
        const { resources } = await client.listResources();
        const { contents } = await client.readResource({ uri });
        const strip = ({ _meta, ...content }) => content;
        return { listed: resources.map(strip).sort(byName), contents: contents.map(strip) };
    },
    prompts: async ({ name, arguments: args }) => {
        const { prompts } = await client.listPrompts();
        const { messages } = plain(await client.getPrompt({ name, arguments: args }));
        return { listed: prompts.map(({ _meta, ...prompt }) => prompt).sort(byName), messages };
    },
    /** Cancels a call once its first progress has arrived, and then asks the server whether it knows, if it can tell. */
    cancel: async ({ tool, arguments: args = {}, then }) => {
        const controller = new AbortController();
        const patience = setTimeout(LIMIT).then(() => controller.abort("no progress"));
        onProgress = () => controller.abort("peer");
        const cancelled = await call({ name: tool, arguments: args }, { signal: controller.signal, timeout: LIMIT, onprogress: () => {} })
            .then(() => "it ended", () => "rejected");
        onProgress = () => {};
        void patience;
        progress = [];
        return { cancelled, then: await callTool(then) };
    },
    /** Remembers a value in one call and recalls it in another. */
    state: async ([first, second]) => [await callTool(first), await callTool(second)],
};

const outcomes = {};
for (const [feature, step] of Object.entries(plan)) {
    asked = [];
    progress = [];
    const limit = setTimeout(LIMIT, { error: "no answer" });
    const attempt = (FEATURES[feature] ?? callTool)(step).then(
        (result) => (result?.isError && feature !== "errors" ? { error: result.content?.[0]?.text } : result),
        (error) => ({ error: String(error?.message ?? error) }),
    );
    outcomes[feature] = await Promise.race([attempt, limit]);
}
console.log(JSON.stringify(outcomes));
// A transport that hangs must not keep the outcomes back.
process.exit(0);
