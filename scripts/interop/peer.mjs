// What the servers of this folder have in common.
import { setTimeout } from "node:timers/promises";

/** An image of one pixel. */
export const PIXEL =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** An elicitation. */
export const QUESTION = {
    message: "What is your name?",
    requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
};

/** Waits up to 10 s until the condition is true. */
export async function waitFor(condition) {
    for (let n = 0; !condition(); n += 1) {
        if (n === 200) throw new Error("it did not happen within 10 s");
        await setTimeout(50);
    }
}
