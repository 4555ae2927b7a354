//! Validation of messages requests.

use serde_json::Value;

use super::Presence::{Optional, Required};
use super::{
    ApiField, ViolationLog, duplicates, is_any, is_boolean, is_count, is_nonempty_list, is_nonempty_text,
    is_object, is_schema, is_text, is_texts, is_tool_name, items,
};

const BODY: [ApiField<'static>; 13] = [
    ("model", Required, is_nonempty_text, "name of a model"),
    ("max_tokens", Required, is_count, "count"),
    ("messages", Required, is_nonempty_list, "list of messages"),
    ("system", Optional, is_system, "text, or list of texts"),
    ("tools", Optional, is_nonempty_list, "list of tools"),
    ("tool_choice", Optional, is_object, "object"),
    ("temperature", Optional, is_share, "number from 0 to 1"),
    ("top_p", Optional, is_share, "number from 0 to 1"),
    ("top_k", Optional, is_count, "count"),
    ("stop_sequences", Optional, is_texts, "list of texts"),
    ("thinking", Optional, is_object, "object"),
    ("output_config", Optional, is_object, "object"),
    ("stream", Optional, is_boolean, "true or false"),
];

const TYPE: ApiField<'static> = ("type", Required, is_text, "type");
const CACHE: ApiField<'static> = ("cache_control", Optional, is_ephemeral, "cache control");

pub(super) fn check(body: &Value, violations: &mut ViolationLog) {
    violations.object("body", body, &BODY);
    check_tools(body, violations);
    check_thinking(body, violations);
    check_messages(items(&body["messages"]), violations);
    let n_marks = body.to_string().matches("\"cache_control\":").count();
    violations.expect("body", n_marks <= 4, "has more than four cache_control markers");
}

fn is_share(value: &Value) -> bool {
    value.as_f64().is_some_and(|share| (0.0..=1.0).contains(&share))
}

fn is_ephemeral(value: &Value) -> bool {
    value["type"] == "ephemeral"
}

fn is_system(value: &Value) -> bool {
    let is_block = |block: &Value| block["type"] == "text" && is_nonempty_text(&block["text"]);
    is_nonempty_text(value) || (is_nonempty_list(value) && items(value).iter().all(is_block))
}

fn check_tools(body: &Value, violations: &mut ViolationLog) {
    let tools = items(&body["tools"]);
    for (at, tool) in tools.iter().enumerate() {
        let fields: [ApiField<'_>; 4] = [
            ("name", Required, is_tool_name, "name of a tool"),
            ("description", Optional, is_text, "text"),
            ("input_schema", Required, is_schema, "schema of an object"),
            CACHE,
        ];
        violations.object(&format!("tools[{at}]"), tool, &fields);
    }
    let names = || tools.iter().filter_map(|tool| tool["name"].as_str());
    for duplicate in duplicates(names()) {
        violations.add("tools", &format!("duplicate '{duplicate}'"));
    }
    let choice = &body["tool_choice"];
    match choice["type"].as_str() {
        _ if choice.is_null() => {}
        _ if tools.is_empty() => violations.add("tool_choice", "requires tools"),
        Some("auto" | "any" | "none") => {}
        Some("tool") => {
            let is_offered = names().any(|name| choice["name"] == name);
            violations.expect("tool_choice", is_offered, "names an unknown tool");
        }
        _ => violations.add("tool_choice", "is unknown"),
    }
}

fn check_thinking(body: &Value, violations: &mut ViolationLog) {
    let thinking = &body["thinking"];
    let effort = &body["output_config"]["effort"];
    if !effort.is_null() {
        let is_known =
            effort.as_str().is_some_and(|effort| ["low", "medium", "high", "max"].contains(&effort));
        violations.expect("output_config.effort", is_known, "is unknown");
    }
    match thinking["type"].as_str() {
        _ if thinking.is_null() => return,
        Some("disabled") => return,
        Some("adaptive") => violations.object("thinking", thinking, &[TYPE]),
        Some("enabled") => {
            violations.object("thinking", thinking, &[TYPE, ("budget_tokens", Required, is_count, "count")]);
            let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
            let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
            violations.expect(
                "thinking",
                (1_024..max_tokens).contains(&budget),
                "has a budget out of bounds",
            );
        }
        _ => violations.add("thinking", "has an unknown type"),
    }
    for name in ["temperature", "top_p", "top_k"] {
        violations.expect(name, body[name].is_null(), "cannot be set while the model thinks");
    }
    let is_forced = matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool"));
    violations.expect("tool_choice", !is_forced, "cannot force a tool while the model thinks");
    if thinking["type"] == "enabled" {
        check_kept_thoughts(items(&body["messages"]), violations);
    }
}

/// Checks that with a thinking budget the assistant turns of the current tool loop begin with a thinking
/// block.
fn check_kept_thoughts(messages: &[Value], violations: &mut ViolationLog) {
    let is_plain_user = |message: &Value| {
        message["role"] == "user"
            && !items(&message["content"]).iter().any(|block| block["type"] == "tool_result")
    };
    let tool_loop = messages.iter().enumerate().rev().take_while(|(_, message)| !is_plain_user(message));
    for (at, turn) in tool_loop.filter(|(_, message)| message["role"] == "assistant") {
        let first = turn["content"][0]["type"].as_str().unwrap_or_default();
        let is_thought = matches!(first, "thinking" | "redacted_thinking");
        violations.expect(&format!("messages[{at}]"), is_thought, "does not begin with a thinking block");
    }
}

fn check_messages(messages: &[Value], violations: &mut ViolationLog) {
    let mut open: Vec<&str> = Vec::new();
    let mut expected = "user";
    for (at, message) in messages.iter().enumerate() {
        let location = format!("messages[{at}]");
        let is_content = |value: &Value| is_nonempty_text(value) || is_nonempty_list(value);
        let fields: [ApiField<'_>; 2] = [
            ("role", Required, is_text, "role"),
            ("content", Required, is_content, "text or list of blocks"),
        ];
        violations.object(&location, message, &fields);
        violations.expect(&location, message["role"] == expected, &format!("expected role {expected}"));
        let blocks = items(&message["content"]);
        if expected == "user" {
            check_user(blocks, &location, std::mem::take(&mut open), violations);
            expected = "assistant";
        } else {
            open = check_assistant(blocks, &location, violations);
            expected = "user";
        }
    }
    violations.expect("messages", expected == "assistant", "end with an assistant message");
}

fn check_user(blocks: &[Value], location: &str, mut open: Vec<&str>, violations: &mut ViolationLog) {
    let mut has_begun = false;
    for (at, block) in blocks.iter().enumerate() {
        let location = format!("{location}.content[{at}]");
        match block["type"].as_str() {
            Some("text") => {
                violations.object(
                    &location,
                    block,
                    &[TYPE, ("text", Required, is_nonempty_text, "text"), CACHE],
                );
            }
            Some("image") => {
                violations.object(&location, block, &[TYPE, ("source", Required, is_image, "image"), CACHE]);
            }
            Some("tool_result") => {
                violations.expect(&location, !has_begun, "is a tool result after other content");
                let fields: [ApiField<'_>; 5] = [
                    TYPE,
                    ("tool_use_id", Required, is_id, "id"),
                    ("content", Optional, is_any, "content"),
                    ("is_error", Optional, is_boolean, "true or false"),
                    CACHE,
                ];
                violations.object(&location, block, &fields);
                let position = open.iter().position(|id| block["tool_use_id"] == *id);
                violations.expect(&location, position.is_some(), "answers an unknown call");
                position.map(|position| open.remove(position));
            }
            _ => violations.add(&location, "is not a valid user block"),
        }
        has_begun |= block["type"] != "tool_result";
    }
    let missing = format!("lacks the results of {}", open.join(", "));
    violations.expect(location, open.is_empty(), &missing);
}

/// Checks an assistant message and returns the ids of its tool calls.
fn check_assistant<'m>(blocks: &'m [Value], location: &str, violations: &mut ViolationLog) -> Vec<&'m str> {
    let mut has_begun = false;
    for (at, block) in blocks.iter().enumerate() {
        let location = format!("{location}.content[{at}]");
        let is_thought = matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
        violations.expect(&location, !(has_begun && is_thought), "is a thinking block after other content");
        has_begun |= !is_thought;
        match block["type"].as_str() {
            Some("text") => {
                violations.object(
                    &location,
                    block,
                    &[TYPE, ("text", Required, is_nonempty_text, "text"), CACHE],
                );
            }
            Some("tool_use") => {
                let fields: [ApiField<'_>; 5] = [
                    TYPE,
                    ("id", Required, is_id, "id"),
                    ("name", Required, is_tool_name, "name of a tool"),
                    ("input", Required, is_object, "object"),
                    CACHE,
                ];
                violations.object(&location, block, &fields);
            }
            Some("thinking") => {
                let fields: [ApiField<'_>; 3] = [
                    TYPE,
                    ("thinking", Required, is_text, "text"),
                    ("signature", Required, is_nonempty_text, "signature"),
                ];
                violations.object(&location, block, &fields);
            }
            Some("redacted_thinking") => {
                violations.object(&location, block, &[TYPE, ("data", Required, is_nonempty_text, "text")]);
            }
            _ => violations.add(&location, "is not a valid assistant block"),
        }
    }
    let ids =
        || blocks.iter().filter(|block| block["type"] == "tool_use").filter_map(|block| block["id"].as_str());
    for duplicate in duplicates(ids()) {
        violations.add(location, &format!("has a duplicate call '{duplicate}'"));
    }
    ids().collect()
}

fn is_id(value: &Value) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    value.as_str().is_some_and(|id| !id.is_empty() && id.bytes().all(is_plain))
}

fn is_image(value: &Value) -> bool {
    let is_type = |kind: &str| kind.starts_with("image/");
    value["type"] == "base64"
        && value["media_type"].as_str().is_some_and(is_type)
        && is_nonempty_text(&value["data"])
}
