//! Whether a request is one of chat completions.

use serde_json::Value;

use super::Need::{May, Must};
use super::{
    Field, Findings, is_any, is_count, is_number, is_object, is_schema, is_some_list, is_some_text, is_text,
    is_texts, is_tool_name, is_yes_or_no, items, twins,
};

const BODY: [Field<'static>; 14] = [
    ("model", Must, is_some_text, "name of a model"),
    ("messages", Must, is_some_list, "list of messages"),
    ("tools", May, is_some_list, "list of tools"),
    ("tool_choice", May, is_any, "choice"),
    ("max_tokens", May, is_count, "count"),
    ("max_completion_tokens", May, is_count, "count"),
    ("temperature", May, is_number, "number"),
    ("top_p", May, is_number, "number"),
    // OpenAI itself has none, but many who are compatible.
    ("top_k", May, is_count, "count"),
    ("stop", May, is_texts, "list of texts"),
    ("reasoning_effort", May, is_effort, "effort"),
    ("stream", May, is_yes_or_no, "true or false"),
    ("stream_options", May, is_object, "object"),
    ("parallel_tool_calls", May, is_yes_or_no, "true or false"),
];

pub(super) fn check(body: &Value, findings: &mut Findings) {
    findings.object("body", body, &BODY);
    if !body["stream_options"].is_null() {
        let fields: [Field<'_>; 1] = [("include_usage", Must, is_yes_or_no, "true or false")];
        findings.object("body.stream_options", &body["stream_options"], &fields);
        findings.expect("body.stream_options", body["stream"] == true, "is there without a stream");
    }
    let has_both = !body["max_tokens"].is_null() && !body["max_completion_tokens"].is_null();
    findings.expect("body", !has_both, "limits the reply twice");
    check_tools(body, findings);
    check_messages(items(&body["messages"]), findings);
}

fn is_effort(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|effort| ["none", "minimal", "low", "medium", "high", "xhigh"].contains(&effort))
}

fn check_tools(body: &Value, findings: &mut Findings) {
    let tools = items(&body["tools"]);
    for (at, tool) in tools.iter().enumerate() {
        let place = format!("tools[{at}]");
        let fields: [Field<'_>; 2] =
            [("type", Must, |kind| kind == "function", "function"), ("function", Must, is_object, "object")];
        findings.object(&place, tool, &fields);
        let fields: [Field<'_>; 4] = [
            ("name", Must, is_tool_name, "name of a tool"),
            ("description", May, is_text, "text"),
            ("parameters", May, is_schema, "schema of an object"),
            ("strict", May, is_yes_or_no, "true or false"),
        ];
        findings.object(&format!("{place}.function"), &tool["function"], &fields);
    }
    let names = || tools.iter().filter_map(|tool| tool["function"]["name"].as_str());
    for twin in twins(names()) {
        findings.tell("tools", &format!("'{twin}' is there twice"));
    }
    match &body["tool_choice"] {
        Value::Null => {}
        _ if tools.is_empty() => findings.tell("tool_choice", "is there without tools"),
        Value::String(word) => {
            let is_known = ["auto", "none", "required"].contains(&word.as_str());
            findings.expect("tool_choice", is_known, "is no known word");
        }
        choice => {
            let name = choice["function"]["name"].as_str().unwrap_or_default();
            let is_right = choice["type"] == "function" && names().any(|known| known == name);
            findings.expect("tool_choice", is_right, "names no tool that is offered");
        }
    }
}

fn check_messages(messages: &[Value], findings: &mut Findings) {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages[{at}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            findings.tell(&place, &format!("comes before the results of {}", open.join(", ")));
            open.clear();
        }
        match role {
            "system" | "developer" => {
                findings.expect(&place, at == 0, "is a system message that is not the first");
                findings.object(&place, message, &[ROLE, ("content", Must, is_some_text, "text")]);
            }
            "user" => {
                findings.object(
                    &place,
                    message,
                    &[ROLE, ("content", Must, is_content, "text or list of parts")],
                );
            }
            "assistant" => open = check_assistant(message, &place, findings),
            "tool" => {
                let fields: [Field<'_>; 3] =
                    [ROLE, ("tool_call_id", Must, is_some_text, "id"), ("content", Must, is_text, "text")];
                findings.object(&place, message, &fields);
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let position = open.iter().position(|known| *known == id);
                findings.expect(&place, position.is_some(), "answers a call that nobody waits for");
                position.map(|position| open.remove(position));
            }
            _ => findings.tell(&place, "has no known role"),
        }
    }
    findings.expect("messages", open.is_empty(), "end before the results of all calls");
    let is_asked = messages.last().is_some_and(|last| last["role"] != "assistant");
    findings.expect("messages", is_asked, "end with what the model said itself");
}

const ROLE: Field<'static> = ("role", Must, is_text, "role");

/// Checks what the model said, and gives the ids of the calls that it waits for.
fn check_assistant<'m>(message: &'m Value, place: &str, findings: &mut Findings) -> Vec<&'m str> {
    let is_said = |value: &Value| value.is_string() || value.is_null();
    let fields: [Field<'_>; 3] =
        [ROLE, ("content", May, is_said, "text"), ("tool_calls", May, is_some_list, "list of calls")];
    findings.object(place, message, &fields);
    let calls = items(&message["tool_calls"]);
    let has_said = !message["content"].is_null() || !calls.is_empty();
    findings.expect(place, has_said, "has neither content nor calls");
    for (at, call) in calls.iter().enumerate() {
        let place = format!("{place}.tool_calls[{at}]");
        let fields: [Field<'_>; 3] = [
            ("id", Must, is_call_id, "id of 1 to 40 characters"),
            ("type", Must, |kind| kind == "function", "function"),
            ("function", Must, is_object, "object"),
        ];
        findings.object(&place, call, &fields);
        let fields: [Field<'_>; 2] = [
            ("name", Must, is_tool_name, "name of a tool"),
            ("arguments", Must, is_written_object, "text of an object"),
        ];
        findings.object(&format!("{place}.function"), &call["function"], &fields);
    }
    let ids = || calls.iter().filter_map(|call| call["id"].as_str());
    for twin in twins(ids()) {
        findings.tell(place, &format!("has the call '{twin}' twice"));
    }
    ids().collect()
}

fn is_call_id(value: &Value) -> bool {
    value.as_str().is_some_and(|id| (1..=40).contains(&id.len()))
}

fn is_written_object(value: &Value) -> bool {
    let read = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    read.is_some_and(|read| read.is_object())
}

fn is_content(value: &Value) -> bool {
    let is_part = |part: &Value| match part["type"].as_str() {
        Some("text") => part["text"].is_string(),
        Some("image_url") => {
            part["image_url"]["url"].as_str().is_some_and(|url| url.starts_with("data:image/"))
        }
        _ => false,
    };
    value.is_string() || (is_some_list(value) && items(value).iter().all(is_part))
}
