//! Whether a request is one of messages.

use serde_json::Value;

use super::Need::{May, Must};
use super::{
    Field, Findings, is_any, is_count, is_object, is_schema, is_some_list, is_some_text, is_text, is_texts,
    is_tool_name, is_yes_or_no, items, twins,
};

const BODY: [Field<'static>; 13] = [
    ("model", Must, is_some_text, "name of a model"),
    ("max_tokens", Must, is_count, "count"),
    ("messages", Must, is_some_list, "list of messages"),
    ("system", May, is_system, "text, or list of texts"),
    ("tools", May, is_some_list, "list of tools"),
    ("tool_choice", May, is_object, "object"),
    ("temperature", May, is_share, "number from 0 to 1"),
    ("top_p", May, is_share, "number from 0 to 1"),
    ("top_k", May, is_count, "count"),
    ("stop_sequences", May, is_texts, "list of texts"),
    ("thinking", May, is_object, "object"),
    ("output_config", May, is_object, "object"),
    ("stream", May, is_yes_or_no, "true or false"),
];

const TYPE: Field<'static> = ("type", Must, is_text, "type");
const CACHE: Field<'static> = ("cache_control", May, is_ephemeral, "cache control");

pub(super) fn check(body: &Value, findings: &mut Findings) {
    findings.object("body", body, &BODY);
    check_tools(body, findings);
    check_thinking(body, findings);
    check_messages(items(&body["messages"]), findings);
    let n_marks = body.to_string().matches("\"cache_control\":").count();
    findings.expect("body", n_marks <= 4, "has more than four marks of what is kept");
}

fn is_share(value: &Value) -> bool {
    value.as_f64().is_some_and(|share| (0.0..=1.0).contains(&share))
}

fn is_ephemeral(value: &Value) -> bool {
    value["type"] == "ephemeral"
}

fn is_system(value: &Value) -> bool {
    let is_block = |block: &Value| block["type"] == "text" && is_some_text(&block["text"]);
    is_some_text(value) || (is_some_list(value) && items(value).iter().all(is_block))
}

fn check_tools(body: &Value, findings: &mut Findings) {
    let tools = items(&body["tools"]);
    for (at, tool) in tools.iter().enumerate() {
        let fields: [Field<'_>; 4] = [
            ("name", Must, is_tool_name, "name of a tool"),
            ("description", May, is_text, "text"),
            ("input_schema", Must, is_schema, "schema of an object"),
            CACHE,
        ];
        findings.object(&format!("tools[{at}]"), tool, &fields);
    }
    let names = || tools.iter().filter_map(|tool| tool["name"].as_str());
    for twin in twins(names()) {
        findings.tell("tools", &format!("'{twin}' is there twice"));
    }
    let choice = &body["tool_choice"];
    match choice["type"].as_str() {
        _ if choice.is_null() => {}
        _ if tools.is_empty() => findings.tell("tool_choice", "is there without tools"),
        Some("auto" | "any" | "none") => {}
        Some("tool") => {
            let is_offered = names().any(|name| choice["name"] == name);
            findings.expect("tool_choice", is_offered, "names no tool that is offered");
        }
        _ => findings.tell("tool_choice", "is no known choice"),
    }
}

fn check_thinking(body: &Value, findings: &mut Findings) {
    let thinking = &body["thinking"];
    let effort = &body["output_config"]["effort"];
    if !effort.is_null() {
        let is_known =
            effort.as_str().is_some_and(|effort| ["low", "medium", "high", "max"].contains(&effort));
        findings.expect("output_config.effort", is_known, "is no known effort");
    }
    match thinking["type"].as_str() {
        _ if thinking.is_null() => return,
        Some("disabled") => return,
        Some("adaptive") => findings.object("thinking", thinking, &[TYPE]),
        Some("enabled") => {
            findings.object("thinking", thinking, &[TYPE, ("budget_tokens", Must, is_count, "count")]);
            let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
            let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
            findings.expect("thinking", (1_024..max_tokens).contains(&budget), "has a budget out of bounds");
        }
        _ => findings.tell("thinking", "is of no known type"),
    }
    for name in ["temperature", "top_p", "top_k"] {
        findings.expect(name, body[name].is_null(), "cannot be set while the model thinks");
    }
    let is_forced = matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool"));
    findings.expect("tool_choice", !is_forced, "cannot force a tool while the model thinks");
    if thinking["type"] == "enabled" {
        check_kept_thoughts(items(&body["messages"]), findings);
    }
}

/// The turns that a model with a budget of thoughts goes on with begin with what it thought.
fn check_kept_thoughts(messages: &[Value], findings: &mut Findings) {
    let is_plain_user = |message: &Value| {
        message["role"] == "user"
            && !items(&message["content"]).iter().any(|block| block["type"] == "tool_result")
    };
    let going_on = messages.iter().enumerate().rev().take_while(|(_, message)| !is_plain_user(message));
    for (at, turn) in going_on.filter(|(_, message)| message["role"] == "assistant") {
        let first = turn["content"][0]["type"].as_str().unwrap_or_default();
        let is_thought = matches!(first, "thinking" | "redacted_thinking");
        findings.expect(&format!("messages[{at}]"), is_thought, "does not begin with what the model thought");
    }
}

fn check_messages(messages: &[Value], findings: &mut Findings) {
    let mut open: Vec<&str> = Vec::new();
    let mut expected = "user";
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages[{at}]");
        let is_content = |value: &Value| is_some_text(value) || is_some_list(value);
        let fields: [Field<'_>; 2] =
            [("role", Must, is_text, "role"), ("content", Must, is_content, "text or list of blocks")];
        findings.object(&place, message, &fields);
        findings.expect(&place, message["role"] == expected, &format!("is not of the {expected}"));
        let blocks = items(&message["content"]);
        if expected == "user" {
            check_user(blocks, &place, std::mem::take(&mut open), findings);
            expected = "assistant";
        } else {
            open = check_assistant(blocks, &place, findings);
            expected = "user";
        }
    }
    findings.expect("messages", expected == "assistant", "end with what the model said itself");
}

fn check_user(blocks: &[Value], place: &str, mut open: Vec<&str>, findings: &mut Findings) {
    let mut has_begun = false;
    for (at, block) in blocks.iter().enumerate() {
        let place = format!("{place}.content[{at}]");
        match block["type"].as_str() {
            Some("text") => {
                findings.object(&place, block, &[TYPE, ("text", Must, is_some_text, "text"), CACHE]);
            }
            Some("image") => {
                findings.object(&place, block, &[TYPE, ("source", Must, is_image, "image"), CACHE]);
            }
            Some("tool_result") => {
                findings.expect(&place, !has_begun, "is a result behind something else");
                let fields: [Field<'_>; 5] = [
                    TYPE,
                    ("tool_use_id", Must, is_id, "id"),
                    ("content", May, is_any, "content"),
                    ("is_error", May, is_yes_or_no, "true or false"),
                    CACHE,
                ];
                findings.object(&place, block, &fields);
                let position = open.iter().position(|id| block["tool_use_id"] == *id);
                findings.expect(&place, position.is_some(), "answers a call that nobody waits for");
                position.map(|position| open.remove(position));
            }
            _ => findings.tell(&place, "is no block of a user"),
        }
        has_begun |= block["type"] != "tool_result";
    }
    let missing = format!("lacks the results of {}", open.join(", "));
    findings.expect(place, open.is_empty(), &missing);
}

/// Checks what the model said, and gives the ids of the calls that it waits for.
fn check_assistant<'m>(blocks: &'m [Value], place: &str, findings: &mut Findings) -> Vec<&'m str> {
    let mut has_begun = false;
    for (at, block) in blocks.iter().enumerate() {
        let place = format!("{place}.content[{at}]");
        let is_thought = matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
        findings.expect(&place, !(has_begun && is_thought), "is a thought behind something else");
        has_begun |= !is_thought;
        match block["type"].as_str() {
            Some("text") => {
                findings.object(&place, block, &[TYPE, ("text", Must, is_some_text, "text"), CACHE]);
            }
            Some("tool_use") => {
                let fields: [Field<'_>; 5] = [
                    TYPE,
                    ("id", Must, is_id, "id"),
                    ("name", Must, is_tool_name, "name of a tool"),
                    ("input", Must, is_object, "object"),
                    CACHE,
                ];
                findings.object(&place, block, &fields);
            }
            Some("thinking") => {
                let fields: [Field<'_>; 3] = [
                    TYPE,
                    ("thinking", Must, is_text, "text"),
                    ("signature", Must, is_some_text, "signature"),
                ];
                findings.object(&place, block, &fields);
            }
            Some("redacted_thinking") => {
                findings.object(&place, block, &[TYPE, ("data", Must, is_some_text, "text")]);
            }
            _ => findings.tell(&place, "is no block of a model"),
        }
    }
    let ids =
        || blocks.iter().filter(|block| block["type"] == "tool_use").filter_map(|block| block["id"].as_str());
    for twin in twins(ids()) {
        findings.tell(place, &format!("has the call '{twin}' twice"));
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
        && is_some_text(&value["data"])
}
