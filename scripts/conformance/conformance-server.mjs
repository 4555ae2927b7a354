// The tools, resources and prompts of the conformance suite on the TypeScript SDK 2, which speaks both eras:
// conformance-server.mjs [http]. With `http` it prints its address first, otherwise it serves stdio.
import { randomUUID } from "node:crypto";
import http from "node:http";

import { localhostHostValidation, NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import { createMcpHandler, inputRequired, isLegacyRequest, ProtocolError, Server } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const INVALID_PARAMS = -32602;

const text = (words) => ({ content: [{ type: "text", text: words }] });
const image = { type: "image", data: PIXEL, mimeType: "image/png" };
const resource = (uri, mimeType, words) => ({ type: "resource", resource: { uri, mimeType, text: words } });
const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

// Input requests of the session era are sent in the middle of the call.
async function elicit(context, message, properties, required = []) {
    const requestedSchema = { type: "object", properties, required };
    const { action, content } = await context.mcpReq.elicitInput({ mode: "form", message, requestedSchema });
    return `action=${action}, content=${JSON.stringify(content)}`;
}

// Those of the stateless era are the result of the call, which the client repeats.
const form = (message, name, type = "string") => ({
    method: "elicitation/create",
    params: { mode: "form", message, requestedSchema: { type: "object", properties: { [name]: { type } }, required: [name] } },
});
const question = (words, maxTokens = 50) => ({
    method: "sampling/createMessage",
    params: { messages: [{ role: "user", content: { type: "text", text: words } }], maxTokens },
});
const roots = { method: "roots/list", params: {} };
const ask = (inputRequests, requestState) => inputRequired({ inputRequests, requestState });
const answers = (context) => context.mcpReq.inputResponses ?? {};
const accepted = (context, name, field) => {
    const answer = answers(context)[name];
    return answer?.action === "accept" ? answer.content?.[field] : undefined;
};

async function log(_arguments, context) {
    for (const line of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
        await context.mcpReq.log("info", line, "typescript");
    }
    return text("Three lines were logged.");
}

async function confirm(_arguments, context) {
    const state = context.mcpReq.requestState();
    const confirmed = accepted(context, "confirm", "ok") !== undefined && state === "round 1";
    return confirmed ? text("state-ok") : ask({ confirm: form("Please confirm", "ok", "boolean") }, "round 1");
}

async function manyRounds(_arguments, context) {
    const state = context.mcpReq.requestState();
    const color = accepted(context, "step2", "color");
    if (state === "step 2" && color) return text(`Your favorite color is ${color}.`);
    const named = state === "step 1" && accepted(context, "step1", "name");
    return named
        ? ask({ step2: form("Step 2: What is your favorite color?", "color") }, "step 2")
        : ask({ step1: form("Step 1: What is your name?", "name") }, "step 1");
}

const TITLED = [1, 2, 3].map((number) => ({ const: `value${number}`, title: `Title ${number}` }));
const OPTIONS = ["option1", "option2", "option3"];
const tools = {
    test_simple_text: () => text("This is a simple text response for testing."),
    test_image_content: () => ({ content: [image] }),
    test_audio_content: () => ({ content: [{ type: "audio", data: SILENCE, mimeType: "audio/wav" }] }),
    test_embedded_resource: () => ({
        content: [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")],
    }),
    test_multiple_content_types: () => ({
        content: [
            { type: "text", text: "Multiple content types test:" },
            image,
            resource("test://mixed-content-resource", "application/json", JSON.stringify({ test: "data", value: 123 })),
        ],
    }),
    test_tool_with_logging: log,
    test_logging_tool: log,
    async test_tool_with_progress(_arguments, context) {
        const { progressToken } = context.mcpReq._meta ?? {};
        for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
            await context.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 100 } });
            await pause();
        }
        return text("Progress was made.");
    },
    test_error_handling: () => ({ isError: true, ...text("This tool intentionally returns an error for testing") }),
    async test_sampling({ prompt }, context) {
        const { content } = await context.mcpReq.requestSampling(question(prompt, 100).params);
        return text(`LLM response: ${content.text}`);
    },
    async test_elicitation({ message }, context) {
        const properties = { username: { type: "string" }, email: { type: "string" } };
        return text(`User response: ${await elicit(context, message, properties, ["username", "email"])}`);
    },
    async test_elicitation_sep1034_defaults(_arguments, context) {
        const properties = {
            name: { type: "string", default: "John Doe" },
            age: { type: "integer", default: 30 },
            score: { type: "number", default: 95.5 },
            status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
            verified: { type: "boolean", default: true },
        };
        return text(`Elicitation completed: ${await elicit(context, "Please review these values", properties)}`);
    },
    async test_elicitation_sep1330_enums(_arguments, context) {
        const properties = {
            untitledSingle: { type: "string", enum: OPTIONS },
            titledSingle: { type: "string", oneOf: TITLED },
            legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["One", "Two", "Three"] },
            untitledMulti: { type: "array", items: { type: "string", enum: OPTIONS } },
            titledMulti: { type: "array", items: { anyOf: TITLED } },
        };
        return text(`Elicitation completed: ${await elicit(context, "Please choose", properties)}`);
    },
    test_input_required_result_elicitation(_arguments, context) {
        const name = accepted(context, "user_name", "name");
        return name ? text(`Hello, ${name}!`) : ask({ user_name: form("What is your name?", "name") });
    },
    test_input_required_result_sampling(_arguments, context) {
        const answer = answers(context).capital_question;
        return answer ? text(answer.content.text) : ask({ capital_question: question("What is the capital of France?", 100) });
    },
    test_input_required_result_list_roots(_arguments, context) {
        const answer = answers(context).client_roots;
        return answer ? text(`Roots: ${JSON.stringify(answer.roots)}`) : ask({ client_roots: roots });
    },
    test_input_required_result_request_state: confirm,
    test_input_required_result_tampered_state: confirm,
    test_input_required_result_multiple_inputs(_arguments, context) {
        const asked = {
            user_name: form("What is your name?", "name"),
            greeting: question("Generate a greeting"),
            client_roots: roots,
        };
        const answered = Object.keys(asked).every((name) => name in answers(context));
        return answered ? text("All answers are here.") : ask(asked, "several");
    },
    test_input_required_result_multi_round: manyRounds,
    json_schema_2020_12_tool: (args) => text(JSON.stringify(args)),
};
const SCHEMAS = {
    test_sampling: { properties: { prompt: { type: "string" } }, required: ["prompt"] },
    test_elicitation: { properties: { message: { type: "string" } }, required: ["message"] },
    json_schema_2020_12_tool: {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        $defs: { address: { $anchor: "addressDef", type: "object", properties: { street: { type: "string" }, city: { type: "string" } } } },
        properties: {
            name: { type: "string" },
            address: { $ref: "#/$defs/address" },
            contactMethod: { type: "string", enum: ["phone", "email"] },
            phone: { type: "string" },
            email: { type: "string" },
        },
        allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
        if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
        then: { required: ["phone"] },
        else: { required: ["email"] },
        additionalProperties: false,
    },
};

const contents = {
    "test://static-text": { mimeType: "text/plain", text: "This is the content of the static text resource." },
    "test://static-binary": { mimeType: "image/png", blob: PIXEL },
    "test://watched-resource": { mimeType: "text/plain", text: "Watched." },
};
function read(uri) {
    const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
    if (id) return { mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) };
    if (!contents[uri]) throw new ProtocolError(INVALID_PARAMS, "Resource not found", { uri });
    return contents[uri];
}

const user = (content) => ({ role: "user", content });
const userText = (words) => user({ type: "text", text: words });
const prompts = {
    test_simple_prompt: [[], () => [userText("This is a simple prompt for testing.")]],
    test_prompt_with_arguments: [
        ["arg1", "arg2"],
        ({ arg1, arg2 }) => [userText(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
    ],
    test_prompt_with_embedded_resource: [
        ["resourceUri"],
        ({ resourceUri }) => [
            user(resource(resourceUri, "text/plain", "Embedded resource content for testing.")),
            userText("Please process the embedded resource above."),
        ],
    ],
    test_prompt_with_image: [[], () => [user(image), userText("Please analyze the image above.")]],
};

function known(table, name, kind) {
    if (!Object.hasOwn(table, name)) throw new ProtocolError(INVALID_PARAMS, `there is no ${kind} '${name}'`);
    return table[name];
}

function makeServer() {
    const capabilities = { tools: {}, prompts: {}, resources: { subscribe: true }, logging: {}, completions: {} };
    const server = new Server({ name: "typescript", version: "2" }, { capabilities });
    const describe = (name) => ({ name, description: `The conformance suite's ${name}` });
    server.setRequestHandler("tools/list", () => ({
        tools: Object.keys(tools).map((name) => ({
            ...describe(name),
            inputSchema: { type: "object", properties: {}, ...SCHEMAS[name] },
        })),
    }));
    server.setRequestHandler("tools/call", ({ params }, context) =>
        known(tools, params.name, "tool")(params.arguments ?? {}, context));
    server.setRequestHandler("prompts/list", () => ({
        prompts: Object.entries(prompts).map(([name, [names]]) => ({
            ...describe(name),
            arguments: names.map((argument) => ({ name: argument, required: true })),
        })),
    }));
    server.setRequestHandler("prompts/get", ({ params }) => ({
        messages: known(prompts, params.name, "prompt")[1](params.arguments ?? {}),
    }));
    server.setRequestHandler("resources/list", () => ({
        resources: Object.entries(contents).map(([uri, { mimeType }]) => ({ uri, mimeType, ...describe(uri.slice(7)) })),
    }));
    server.setRequestHandler("resources/templates/list", () => ({
        resourceTemplates: [{ uriTemplate: "test://template/{id}/data", ...describe("template"), mimeType: "application/json" }],
    }));
    server.setRequestHandler("resources/read", ({ params: { uri } }) => ({ contents: [{ uri, ...read(uri) }] }));
    server.setRequestHandler("resources/subscribe", () => ({}));
    server.setRequestHandler("resources/unsubscribe", () => ({}));
    server.setRequestHandler("completion/complete", () => ({ completion: { values: ["first", "second"], total: 2, hasMore: false } }));
    return server;
}

/** Serves requests of the session era; each session has a server of its own. */
function sessionHandler() {
    const transports = new Map();
    return async (request, response, body) => {
        const id = request.headers["mcp-session-id"];
        let transport = transports.get(id);
        if (!transport) {
            if (id !== undefined || body?.method !== "initialize") {
                response.writeHead(id === undefined ? 400 : 404).end();
                return;
            }
            transport = new NodeStreamableHTTPServerTransport({
                sessionIdGenerator: randomUUID,
                onsessioninitialized: (opened) => transports.set(opened, transport),
            });
            await makeServer().connect(transport);
        }
        await transport.handleRequest(request, response, body);
    };
}

async function readBody(request) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    try {
        return JSON.parse(Buffer.concat(chunks));
    } catch {
        return undefined;
    }
}

function serveHttp() {
    const modern = toNodeHandler(createMcpHandler(makeServer, { legacy: "reject" }));
    const session = sessionHandler();
    const isValidHost = localhostHostValidation();
    const server = http.createServer(async (request, response) => {
        if (!isValidHost(request, response)) return;
        const body = request.method === "POST" ? await readBody(request) : undefined;
        const isLegacy = request.method !== "POST" || (await isLegacyRequest(await toWebRequest(request, body), body));
        await (isLegacy ? session : modern)(request, response, body);
    });
    server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}

if (process.argv[2] === "http") serveHttp();
else serveStdio(makeServer);
