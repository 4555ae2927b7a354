//! What models write when they mean several calls.

use std::borrow::Cow;

use pegboard_core::arguments::Arguments;
use pegboard_core::call::ToolRef;
use pegboard_core::id::ToolId;
use pegboard_json::{RawJson, canonical, twin_member};

use super::Order;

/// How many calls one batch may make.
const MAX_CALLS: usize = 200;
/// How much of a caller's word an error says.
const MAX_QUOTED_CHARS: usize = 40;

/// A batch that can be carried out.
pub(super) struct Request {
    pub(super) items: Vec<Item>,
    pub(super) order: Order,
}

/// One call of a batch.
pub(super) struct Item {
    pub(super) id: RawJson,
    pub(super) tool: ToolRef,
    pub(super) arguments: Arguments,
}

/// The batch that the arguments of a call ask for.
pub(super) fn read(arguments: &RawJson) -> Result<Request, String> {
    check_twins(arguments, || "the batch".to_owned())?;
    let calls = calls(arguments)?;
    let n_calls = calls.items().count();
    if n_calls > MAX_CALLS {
        return Err(format!(
            "invalid_batch_input: {n_calls} calls are too many for one batch; make at most {MAX_CALLS}"
        ));
    }
    let items =
        calls.items().enumerate().map(|(index, call)| item(index, &call)).collect::<Result<_, _>>()?;
    Ok(Request { items, order: order(arguments)? })
}

fn order(arguments: &RawJson) -> Result<Order, String> {
    let stop_on_error = arguments.get("stopOnError").is_some_and(|stops| stops.as_str() == "true");
    let Some(mode) = member(arguments, "mode") else {
        return Ok(if stop_on_error { Order::Sequential { stop_on_error } } else { Order::Parallel });
    };
    match mode.text().as_deref() {
        Some("parallel") if stop_on_error => {
            Err("invalid_batch_input: calls that run at the same time cannot stop each other; leave out stopOnError or use mode 'sequential'".to_owned())
        }
        Some("parallel") => Ok(Order::Parallel),
        Some("sequential") => Ok(Order::Sequential { stop_on_error }),
        _ => Err("invalid_batch_input: mode must be 'parallel' or 'sequential'".to_owned()),
    }
}

/// The list of calls, which some models write as a text. There is at least one.
fn calls(arguments: &RawJson) -> Result<RawJson, String> {
    let none = || "empty_batch: agent__batch received empty calls array (type: object)".to_owned();
    let calls = arguments.get("calls").ok_or_else(none)?;
    let has_calls = |list: &RawJson| list.items().next().is_some();
    if !calls.as_str().starts_with('"') {
        return Some(calls).filter(has_calls).ok_or_else(none);
    }
    let text = calls.text().unwrap_or(Cow::Borrowed(calls.as_str()));
    // Whatever stands after the list.
    let list = RawJson::parse_first(text.as_ref().to_owned().into()).ok();
    list.filter(has_calls).ok_or_else(|| {
        let length = text.chars().count();
        format!("empty_batch: agent__batch received empty or unparseable calls array (raw string length: {length})")
    })
}

fn item(index: usize, call: &RawJson) -> Result<Item, String> {
    let invalid = || "invalid_batch_input: each call requires non-empty id and tool".to_owned();
    check_twins(call, || format!("call {index}"))?;
    let id = match member(call, "id") {
        None => RawJson::of(&format!("call_{index}")),
        Some(id) => read_id(id).ok_or_else(invalid)?,
    };
    let tool = one_of(call, &["tool", "name"])?.and_then(|tool| tool_ref(&tool)).ok_or_else(invalid)?;
    let arguments = one_of(call, &["parameters", "arguments", "params"])?.map(unwrapped);
    Ok(Item { id, tool, arguments: arguments.map_or_else(Arguments::default, Arguments::from) })
}

/// A text without the space around it, or a number as it is spelled.
fn read_id(id: RawJson) -> Option<RawJson> {
    if let Some(text) = id.text() {
        let text = text.trim();
        return (!text.is_empty()).then(|| RawJson::of(text));
    }
    id.as_str().starts_with(|first: char| first == '-' || first.is_ascii_digit()).then_some(id)
}

/// A tool as a batch names it: its name, or its identity.
fn tool_ref(tool: &RawJson) -> Option<ToolRef> {
    if tool.is_object() {
        return tool.read::<ToolId>().ok().map(ToolRef::Id);
    }
    let name = tool.text()?;
    let name = name.trim();
    (!name.is_empty()).then(|| ToolRef::Name(name.to_owned()))
}

/// The arguments of a call, which some models write as a text.
fn unwrapped(arguments: RawJson) -> RawJson {
    let text = arguments.text();
    let object = text.and_then(|text| RawJson::parse(text.into_owned().into()).ok());
    object.filter(RawJson::is_object).unwrap_or(arguments)
}

/// What is under one of several names for the same thing; if under two, it must be the same. Null is nothing.
fn one_of(call: &RawJson, names: &[&str]) -> Result<Option<RawJson>, String> {
    let mut given = names.iter().filter_map(|name| member(call, name));
    let Some(first) = given.next() else { return Ok(None) };
    if given.any(|other| canonical(&other) != canonical(&first)) {
        return Err(format!(
            "invalid_batch_input: {} say different things; give one of them",
            names.join(" and ")
        ));
    }
    Ok(Some(first))
}

/// A member that is there and not null.
fn member(object: &RawJson, name: &str) -> Option<RawJson> {
    object.get(name).filter(is_given)
}

fn is_given(value: &RawJson) -> bool {
    value.as_str() != "null"
}

/// Readers differ in which of two members they take, so nobody could know what is meant.
fn check_twins(object: &RawJson, place: impl Fn() -> String) -> Result<(), String> {
    let Some(name) = twin_member(object) else { return Ok(()) };
    let name: String = name.chars().take(MAX_QUOTED_CHARS).collect();
    Err(format!("invalid_batch_input: {} has '{name}' twice; give it once", place()))
}
