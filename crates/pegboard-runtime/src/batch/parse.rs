//! What models write when they mean several calls.

use pegboard_core::call::ToolRef;
use serde_json::{Map, Value};

use super::{Order, no_arguments, tool_ref};

/// How many calls one batch may make.
const MAX_CALLS: usize = 200;

/// A batch that can be carried out.
pub(super) struct Request {
    pub(super) items: Vec<Item>,
    pub(super) order: Order,
}

/// One call of a batch.
pub(super) struct Item {
    pub(super) id: Value,
    pub(super) tool: ToolRef,
    pub(super) arguments: Value,
}

/// The batch that the arguments of a call ask for.
pub(super) fn read(arguments: &Value) -> Result<Request, String> {
    let calls = calls(&arguments["calls"])?;
    if calls.len() > MAX_CALLS {
        return Err(format!(
            "invalid_batch_input: {} calls are too many for one batch; make at most {MAX_CALLS}",
            calls.len()
        ));
    }
    let items = calls.iter().enumerate().map(|(index, call)| item(index, call)).collect::<Result<_, _>>()?;
    Ok(Request { items, order: order(arguments)? })
}

fn order(arguments: &Value) -> Result<Order, String> {
    let stop_on_error = arguments["stopOnError"] == true;
    match arguments["mode"].as_str() {
        None if arguments["mode"].is_null() && stop_on_error => Ok(Order::Sequential { stop_on_error }),
        None if arguments["mode"].is_null() => Ok(Order::Parallel),
        Some("parallel") if stop_on_error => {
            Err("invalid_batch_input: calls that run at the same time cannot stop each other; leave out stopOnError or use mode 'sequential'".to_owned())
        }
        Some("parallel") => Ok(Order::Parallel),
        Some("sequential") => Ok(Order::Sequential { stop_on_error }),
        _ => Err("invalid_batch_input: mode must be 'parallel' or 'sequential'".to_owned()),
    }
}

/// The list of calls, which some models write as a text.
fn calls(value: &Value) -> Result<Vec<Value>, String> {
    let list = match value {
        Value::Array(list) => list.clone(),
        Value::String(text) => {
            let list = parsed_list(text).unwrap_or_default();
            if list.is_empty() {
                let length = text.chars().count();
                return Err(format!(
                    "empty_batch: agent__batch received empty or unparseable calls array (raw string length: {length})"
                ));
            }
            list
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    if list.is_empty() {
        return Err("empty_batch: agent__batch received empty calls array (type: object)".to_owned());
    }
    Ok(list)
}

/// A list in a text, whatever stands after it.
fn parsed_list(text: &str) -> Option<Vec<Value>> {
    let trimmed = text.trim();
    serde_json::from_str(trimmed).ok().or_else(|| {
        let mut values = serde_json::Deserializer::from_str(trimmed).into_iter::<Value>();
        match values.next()?.ok()? {
            Value::Array(list) => Some(list),
            _ => None,
        }
    })
}

fn item(index: usize, call: &Value) -> Result<Item, String> {
    let invalid = || "invalid_batch_input: each call requires non-empty id and tool".to_owned();
    let Value::Object(call) = call else { return Err(invalid()) };
    let id = match call.get("id") {
        None | Some(Value::Null) => format!("call_{index}").into(),
        Some(Value::String(id)) if !id.trim().is_empty() => id.trim().into(),
        Some(id @ Value::Number(_)) => id.clone(),
        Some(_) => return Err(invalid()),
    };
    let tool = one_of(call, &["tool", "name"])?.and_then(tool_ref).ok_or_else(invalid)?;
    let arguments = match one_of(call, &["parameters", "arguments", "params"])? {
        None | Some(Value::Null) => no_arguments(),
        // Some models write the arguments as a text.
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(parsed @ Value::Object(_)) => parsed,
            Ok(_) | Err(_) => Value::String(text.clone()),
        },
        Some(arguments) => arguments.clone(),
    };
    Ok(Item { id, tool, arguments })
}

/// What is under one of several names for the same thing; if under two, it must be the same.
fn one_of<'c>(call: &'c Map<String, Value>, names: &[&str]) -> Result<Option<&'c Value>, String> {
    let mut given = names.iter().filter_map(|name| call.get(*name));
    let first = given.next();
    if given.any(|other| Some(other) != first) {
        return Err(format!(
            "invalid_batch_input: {} say different things; give one of them",
            names.join(" and ")
        ));
    }
    Ok(first)
}
