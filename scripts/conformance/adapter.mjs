// A proxy that calls tools the way a surface wants it, so that the conformance suite, which calls tools by their names,
// can test the surfaces `meta` and `agent`: adapter.mjs GATEWAY, the URL of `/mcp`. Prints its own address first.
//
// A profile named SURFACE-TOOLBOX is forwarded to. In it `tools/call NAME` becomes
//   meta    `use_tool`; `tools/list` lists what `open_toolbox` returns, and a session opens the toolbox before anything else
//   agent   the tool of the server, with NAME as its `mode`
// Responses pass as they are, but for that list.
import http from "node:http";

const gateway = new URL(process.argv[2]);
const SERVER = "fixture";
/** Sessions that have opened their toolbox. */
const opened = new Set();

function forward(request, path, headers, body) {
    return new Promise((resolve, reject) => {
        const options = { host: gateway.hostname, port: gateway.port, path, method: request.method, headers };
        const outgoing = http.request(options, resolve);
        outgoing.on("error", reject);
        request.abandon = () => outgoing.destroy();
        outgoing.end(body);
    });
}

async function read(stream) {
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return Buffer.concat(chunks);
}

/** A message as the request has it, if the body is one. */
function parse(body) {
    try {
        return JSON.parse(body);
    } catch {
        return undefined;
    }
}

/** Names the tool in `Mcp-Name` as the body does, if the client has named it so; what it has wrong stays wrong. */
function rename(headers, was, name) {
    if (headers["mcp-name"] === was) headers["mcp-name"] = name;
}

/** Opens the toolbox with a call of our own, and returns its tools. */
async function open({ request, path, headers, message, toolbox }) {
    const own = { ...headers, accept: "application/json, text/event-stream" };
    if (own["mcp-method"]) Object.assign(own, { "mcp-method": "tools/call", "mcp-name": "open_toolbox" });
    const params = { name: "open_toolbox", arguments: { toolbox }, _meta: message.params?._meta };
    const call = { jsonrpc: "2.0", id: `open-${message.id}`, method: "tools/call", params };
    const answer = String(await read(await forward(request, path, own, JSON.stringify(call))));
    const found = messages(answer).find(({ id }) => id === call.id);
    const text = found?.result?.content?.[0]?.text;
    return text === undefined ? undefined : JSON.parse(text).tools;
}

/** The messages of a response, which is one or a stream of them. */
function messages(text) {
    const lines = text.startsWith("{") ? [text] : text.split("\n").filter((line) => line.startsWith("data: {"));
    return lines.map((line) => JSON.parse(line.replace(/^data: /, "")));
}

/** Calls the tool through the surface. */
function translate({ surface, toolbox, message, headers }) {
    const { name, arguments: args, ...rest } = message.params;
    const target = surface === "meta" ? "use_tool" : SERVER;
    const translated =
        surface === "meta"
            ? { tool: { toolbox, server: SERVER, name }, ...(args === undefined ? {} : { arguments: args }) }
            : { mode: name, ...args };
    rename(headers, name, target);
    return JSON.stringify({ ...message, params: { ...rest, name: target, arguments: translated } });
}

/** Writes the tools of the toolbox into the response to `tools/list`. */
async function list(exchange, response, outgoing) {
    const tools = await open(exchange);
    const replace = (line) => {
        const message = JSON.parse(line);
        if (tools && message.result?.tools) {
            message.result.tools = tools.map(({ server, toolbox, ...tool }) => tool);
        }
        return JSON.stringify(message);
    };
    const text = String(await read(response));
    const body = text.startsWith("{") ? replace(text) : text.replaceAll(/^data: (\{.*)$/gm, (_, line) => `data: ${replace(line)}`);
    const { "content-length": _, ...headers } = response.headers;
    outgoing.writeHead(response.statusCode, headers);
    outgoing.end(body);
}

async function serve(request, outgoing) {
    let body = await read(request);
    const [profile] = request.url.slice(1).split("/");
    const surface = profile.slice(0, profile.indexOf("-"));
    const { "content-length": _, connection: __, ...headers } = request.headers;
    const message = parse(body);
    const path = `${gateway.pathname}${request.url}`;
    const exchange = { request, path, headers, message, surface, toolbox: profile.slice(surface.length + 1) };
    const session = headers["mcp-session-id"];
    if (surface === "meta" && session && message?.id !== undefined && message.method && !opened.has(session)) {
        opened.add(session);
        await open(exchange);
    }
    if (message?.method === "tools/call" && typeof message.params?.name === "string") body = translate(exchange);
    outgoing.on("close", () => request.abandon?.());
    const response = await forward(request, path, { ...headers, "content-length": Buffer.byteLength(body) }, body);
    if (message?.method === "tools/list" && surface === "meta") return list(exchange, response, outgoing);
    outgoing.writeHead(response.statusCode, response.headers);
    outgoing.flushHeaders();
    response.pipe(outgoing);
    response.on("error", () => outgoing.destroy());
}

const server = http.createServer((request, outgoing) => {
    serve(request, outgoing).catch((error) => {
        console.error(error);
        if (!outgoing.headersSent) outgoing.writeHead(502);
        outgoing.destroy();
    });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
