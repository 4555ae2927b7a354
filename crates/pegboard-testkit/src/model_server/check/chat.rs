//! Validation of chat completions requests.

use serde_json::Value;

use super::Presence::{Optional, Required};
use super::{
    ApiField, ViolationLog, duplicates, is_any, is_boolean, is_count, is_nonempty_list, is_nonempty_text,
    is_number, is_object, is_schema, is_text, is_texts, is_tool_name, items,
};

const BODY: [ApiField<'static>; 14] = [
    ("model", Required, is_nonempty_text, "name of a model"),
    ("messages", Required, is_nonempty_list, "list of messages"),
    ("tools", Optional, is_nonempty_list, "list of tools"),
    ("tool_choice", Optional, is_any, "choice"),
    ("max_tokens", Optional, is_count, "count"),
    ("max_completion_tokens", Optional, is_count, "count"),
    ("temperature", Optional, is_number, "number"),
    ("top_p", Optional, is_number, "number"),
    // OpenAI does not have it, but many compatible servers do.
    ("top_k", Optional, is_count, "count"),
    ("stop", Optional, is_texts, "list of texts"),
    ("reasoning_effort", Optional, is_effort, "effort"),
    ("stream", Optional, is_boolean, "true or false"),
    ("stream_options", Optional, is_object, "object"),
    ("parallel_tool_calls", Optional, is_boolean, "true or false"),
];

pub(super) fn check(body: &Value, violations: &mut ViolationLog) {
    violations.object("body", body, &BODY);
    if !body["stream_options"].is_null() {
        let fields: [ApiField<'_>; 1] = [("include_usage", Required, is_boolean, "true or false")];
        violations.object("body.stream_options", &body["stream_options"], &fields);
        violations.expect("body.stream_options", body["stream"] == true, "requires streaming");
    }
    let has_both = !body["max_tokens"].is_null() && !body["max_completion_tokens"].is_null();
    violations.expect("body", !has_both, "has two output limits");
    check_tools(body, violations);
    check_messages(items(&body["messages"]), violations);
}

fn is_effort(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|effort| ["none", "minimal", "low", "medium", "high", "xhigh"].contains(&effort))
}

fn check_tools(body: &Value, violations: &mut ViolationLog) {
    let tools = items(&body["tools"]);
    for (at, tool) in tools.iter().enumerate() {
        let location = format!("tools[{at}]");
        let fields: [ApiField<'_>; 2] = [
            ("type", Required, |kind| kind == "function", "function"),
            ("function", Required, is_object, "object"),
        ];
        violations.object(&location, tool, &fields);
        let fields: [ApiField<'_>; 4] = [
            ("name", Required, is_tool_name, "name of a tool"),
            ("description", Optional, is_text, "text"),
            ("parameters", Optional, is_schema, "schema of an object"),
            ("strict", Optional, is_boolean, "true or false"),
        ];
        violations.object(&format!("{location}.function"), &tool["function"], &fields);
    }
    let names = || tools.iter().filter_map(|tool| tool["function"]["name"].as_str());
    for duplicate in duplicates(names()) {
        violations.add("tools", &format!("duplicate '{duplicate}'"));
    }
    match &body["tool_choice"] {
        Value::Null => {}
        _ if tools.is_empty() => violations.add("tool_choice", "requires tools"),
        Value::String(word) => {
            let is_known = ["auto", "none", "required"].contains(&word.as_str());
            violations.expect("tool_choice", is_known, "is unknown");
        }
        choice => {
            let name = choice["function"]["name"].as_str().unwrap_or_default();
            let is_right = choice["type"] == "function" && names().any(|known| known == name);
            violations.expect("tool_choice", is_right, "names an unknown tool");
        }
    }
}

fn check_messages(messages: &[Value], violations: &mut ViolationLog) {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let location = format!("messages[{at}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            violations.add(&location, &format!("comes before the results of {}", open.join(", ")));
            open.clear();
        }
        match role {
            "system" | "developer" => {
                violations.expect(&location, at == 0, "is a system message that is not the first");
                violations.object(
                    &location,
                    message,
                    &[ROLE, ("content", Required, is_nonempty_text, "text")],
                );
            }
            "user" => {
                violations.object(
                    &location,
                    message,
                    &[ROLE, ("content", Required, is_content, "text or list of parts")],
                );
            }
            "assistant" => open = check_assistant(message, &location, violations),
            "tool" => {
                let fields: [ApiField<'_>; 3] = [
                    ROLE,
                    ("tool_call_id", Required, is_nonempty_text, "id"),
                    ("content", Required, is_text, "text"),
                ];
                violations.object(&location, message, &fields);
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let position = open.iter().position(|known| *known == id);
                violations.expect(&location, position.is_some(), "answers an unknown call");
                position.map(|position| open.remove(position));
            }
            _ => violations.add(&location, "has an unknown role"),
        }
    }
    violations.expect("messages", open.is_empty(), "end before the results of all calls");
    let ends_with_request = messages.last().is_some_and(|last| last["role"] != "assistant");
    violations.expect("messages", ends_with_request, "end with an assistant message");
}

const ROLE: ApiField<'static> = ("role", Required, is_text, "role");

/// Checks an assistant message and returns the ids of its tool calls.
fn check_assistant<'m>(message: &'m Value, location: &str, violations: &mut ViolationLog) -> Vec<&'m str> {
    let is_text_or_null = |value: &Value| value.is_string() || value.is_null();
    let fields: [ApiField<'_>; 3] = [
        ROLE,
        ("content", Optional, is_text_or_null, "text"),
        ("tool_calls", Optional, is_nonempty_list, "list of calls"),
    ];
    violations.object(location, message, &fields);
    let calls = items(&message["tool_calls"]);
    let has_content = !message["content"].is_null() || !calls.is_empty();
    violations.expect(location, has_content, "has neither content nor calls");
    for (at, call) in calls.iter().enumerate() {
        let location = format!("{location}.tool_calls[{at}]");
        let fields: [ApiField<'_>; 3] = [
            ("id", Required, is_call_id, "id of 1 to 40 characters"),
            ("type", Required, |kind| kind == "function", "function"),
            ("function", Required, is_object, "object"),
        ];
        violations.object(&location, call, &fields);
        let fields: [ApiField<'_>; 2] = [
            ("name", Required, is_tool_name, "name of a tool"),
            ("arguments", Required, is_written_object, "text of an object"),
        ];
        violations.object(&format!("{location}.function"), &call["function"], &fields);
    }
    let ids = || calls.iter().filter_map(|call| call["id"].as_str());
    for duplicate in duplicates(ids()) {
        violations.add(location, &format!("has a duplicate call '{duplicate}'"));
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
    value.is_string() || (is_nonempty_list(value) && items(value).iter().all(is_part))
}
