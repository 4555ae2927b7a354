// What a client of either TypeScript SDK must be able to do with the fixture.
import assert from "node:assert/strict";

const ANSWERS = { username: "ada", email: "ada@example.org", name: "Ada", color: "green" };

/** Accepts an elicitation, with a value for each property that it asks for. */
export function accept({ params }) {
    const asked = Object.keys(params.requestedSchema.properties);
    return { action: "accept", content: Object.fromEntries(asked.map((name) => [name, ANSWERS[name]])) };
}

/** Goes through the fixture. `call(params, options)` calls a tool: the two SDKs spell that differently. */
export async function exercise(label, client, call) {
    const arrived = eavesdrop(client.transport);
    const ok = (what) => console.log(`ok ${label}: ${what}`);
    const text = async (name, args, options) => {
        const { content } = await call({ name, arguments: args }, options);
        return content[0].text;
    };

    assert.equal(client.getServerVersion()?.name, "pegboard-fixture");
    const { tools } = await client.listTools();
    const names = tools.map((tool) => tool.name);
    assert.ok(names.includes("test_simple_text") && names.includes("json_schema_2020_12_tool"), `${names}`);
    ok(`${tools.length} tools`);

    assert.equal(await text("test_simple_text", {}), "This is a simple text response for testing.");
    ok("a tool answers");

    const heard = [];
    arrived.length = 0;
    await text("test_tool_with_progress", {}, { onprogress: ({ progress }) => heard.push(progress) });
    const order = arrived.map((message) => message.params?.progress ?? ("result" in message ? "result" : "?"));
    assert.deepEqual(order, [0, 50, 100, "result"]);
    // Both SDKs may lose progress that arrives together with the result (typescript-sdk issue 2580).
    assert.deepEqual(heard, [0, 50, 100].slice(0, heard.length));
    ok("progress comes in order and before the result");

    const told = await text("test_elicitation", { message: "Who is there?" });
    assert.equal(told, 'User response: action: accept, content: {"username":"ada","email":"ada@example.org"}');
    ok("an elicitation is answered");

    const colour = await text("test_input_required_result_multi_round", {});
    assert.equal(colour, "Your favorite color is green.");
    ok("two questions, one after the other, are answered");

    const { contents } = await client.readResource({ uri: "test://static-text" });
    assert.equal(contents[0].text, "This is the content of the static text resource.");
    ok("a resource is read");

    const { messages } = await client.getPrompt({ name: "test_simple_prompt" });
    assert.equal(messages[0].content.text, "This is a simple prompt for testing.");
    ok("a prompt is got");

    await assert.rejects(client.readResource({ uri: "test://nowhere" }), /Resource not found/);
    ok("an error arrives as one");
}

/** All messages that arrive on a transport from now on. */
function eavesdrop(transport) {
    const arrived = [];
    const { onmessage } = transport;
    transport.onmessage = (message, extra) => {
        arrived.push(message);
        onmessage(message, extra);
    };
    return arrived;
}
