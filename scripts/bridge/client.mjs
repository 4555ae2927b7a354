// A client of a TypeScript SDK through the gateway: client.mjs SDK PLAN ERA URL | client.mjs SDK PLAN ERA PEGBOARD FILE.
// SDK is `v1` or `v2`. Goes through the plan of every server, each at a profile of its name.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const [sdk, plan, era, target, file] = process.argv.slice(2);
const revision = { session: "2025-11-25", stateless: "2026-07-28" }[era];
// Long enough for a busy machine; what does not come at all is an error.
const PATIENCE = 20_000;

const capabilities = { elicitation: {}, sampling: {} };

function accept({ params }) {
    const article = (name) => ("aeio".includes(name[0]) ? "an" : "a");
    const values = params.requestedSchema.required.map((name) => [name, `${article(name)} ${name}`]);
    return { action: "accept", content: Object.fromEntries(values) };
}

function sample({ params }) {
    const content = [params.messages[0].content].flat()[0];
    return { role: "assistant", model: "none", content: { type: "text", text: `I heard: ${content.text}` } };
}

/** What is different in the two SDKs. */
const SDKS = {
    async v1() {
        const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
        const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
        const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
        const types = await import("@modelcontextprotocol/sdk/types.js");
        return {
            StdioClientTransport,
            StreamableHTTPClientTransport,
            make: () => new Client({ name: "v1", version: "1" }, { capabilities }),
            methods: [
                types.ElicitRequestSchema, types.CreateMessageRequestSchema, types.ResourceUpdatedNotificationSchema,
            ],
            call: (client, params, options) => client.callTool(params, undefined, options),
        };
    },
    async v2() {
        const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
        const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
        const mode = { session: "legacy", stateless: "auto" }[era];
        const options = { capabilities, versionNegotiation: { mode } };
        return {
            StdioClientTransport,
            StreamableHTTPClientTransport,
            make: () => new Client({ name: "v2", version: "1" }, options),
            methods: ["elicitation/create", "sampling/createMessage", "notifications/resources/updated"],
            call: (client, params, options) => client.callTool(params, options),
        };
    },
};

const { make, methods, call, StdioClientTransport, StreamableHTTPClientTransport } = await SDKS[sdk]();

async function connect(profile) {
    const client = make();
    const updates = [];
    const heard = new EventTarget();
    client.setRequestHandler(methods[0], accept);
    client.setRequestHandler(methods[1], sample);
    client.setNotificationHandler(methods[2], ({ params }) => {
        updates.push(params.uri);
        heard.dispatchEvent(new Event("update"));
    });
    const args = ["serve", file, "--stdio", "--no-daemon", "--profile", profile, "--no-watch"];
    await client.connect(
        file
            ? new StdioClientTransport({ command: target, args })
            : new StreamableHTTPClientTransport(new URL(`${target}/${profile}`)),
    );
    // What arrives, before the SDK makes something of it.
    const arrived = [];
    const { onmessage } = client.transport;
    client.transport.onmessage = (message, extra) => {
        arrived.push(message);
        onmessage(message, extra);
    };
    return { client, updates, heard, arrived };
}

async function callTool({ client, arrived }, step) {
    const heard = [];
    arrived.length = 0;
    const params = { name: step.tool, arguments: step.arguments ?? {} };
    const { content } = await call(client, params, { onprogress: ({ progress }) => heard.push(progress) });
    if (step.progress) {
        const about = arrived.filter((message) => message.params?.progressToken !== undefined || "result" in message);
        const order = about.map((message) => message.params?.progress ?? "result");
        assert.deepEqual(order, [...step.progress, "result"]);
        // Both SDKs may lose progress that arrives together with the result (typescript-sdk issue 2580).
        assert.deepEqual(heard, step.progress.slice(0, heard.length));
    }
    return content.filter(({ type }) => type === "text").map(({ text }) => text).join("\n");
}

async function callAndHear(seat, step) {
    const uri = step.updates;
    const patience = AbortSignal.timeout(PATIENCE);
    const update = new Promise((resolve, reject) => {
        seat.heard.addEventListener("update", resolve, { once: true });
        patience.addEventListener("abort", () => reject(new Error(`no word of ${uri}`)));
    });
    let listening;
    if (era === "stateless") {
        listening = await seat.client.listen({ resourceSubscriptions: [uri] });
    } else {
        await seat.client.subscribeResource({ uri });
    }
    const said = await callTool(seat, step);
    await update;
    assert.equal(seat.updates[0], uri);
    await listening?.close();
    return said;
}

async function take(seat, step) {
    if (step.updates) return callAndHear(seat, step);
    if (step.tool) return callTool(seat, step);
    if (step.prompt) return (await seat.client.getPrompt({ name: step.prompt })).messages[0].content.text;
    try {
        return (await seat.client.readResource({ uri: step.resource })).contents[0].text;
    } catch (error) {
        return `refused: ${error.message}`;
    }
}

const plans = JSON.parse(readFileSync(plan, "utf8"));
for (const [profile, its] of Object.entries(plans)) {
    // A name is the plan of another.
    const steps = typeof its === "string" ? plans[its] : its;
    const seat = await connect(profile);
    const { client } = seat;
    const label = `${profile}, ${era}`;
    const ok = (what) => console.log(`ok ${label}: ${what}`);
    if (sdk === "v2") assert.equal(client.getNegotiatedProtocolVersion(), revision);
    const [{ tools }, { prompts }, { resources }] = await Promise.all([
        client.listTools(), client.listPrompts(), client.listResources(),
    ]);
    const listed = [...tools.map(({ name }) => name), ...prompts.map(({ name }) => name), ...resources.map(({ uri }) => uri)];
    for (const step of steps) {
        const name = step.tool ?? step.prompt ?? step.resource;
        assert.equal(listed.includes(name), !step.refuses, `${label}: ${name} in the lists`);
    }
    ok("lists");
    for (const step of steps) {
        const said = await take(seat, step);
        const wanted = step.refuses ? ["refused: ", step.refuses] : [step.says];
        for (const part of wanted) assert.ok(said.includes(part), `${label}: ${step.what}: ${said}`);
        ok(step.what);
    }
    await client.close();
}
