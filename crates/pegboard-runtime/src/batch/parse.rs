//! Parses the arguments of a batch, tolerating the variants that models write.

use std::borrow::Cow;

use pegboard_core::arguments::CallArguments;
use pegboard_core::call::ToolRef;
use pegboard_core::id::ToolId;
use pegboard_json::{RawJson, canonical, duplicate_member};

use super::BatchOrder;

/// Maximum number of calls per batch.
const MAX_CALLS: usize = 200;
/// Maximum length of a caller's text quoted in an error.
const MAX_QUOTED_CHARS: usize = 40;

/// A parsed batch.
pub(super) struct BatchRequest {
    pub(super) items: Vec<BatchItem>,
    pub(super) order: BatchOrder,
}

/// One call of a batch.
#[derive(Debug)]
pub struct BatchItem {
    /// The caller's id, or `call_` and the position.
    pub id: RawJson,
    /// Tool to call.
    pub tool: ToolRef,
    /// Arguments of the tool.
    pub arguments: CallArguments,
}

impl BatchItem {
    /// Keys of an item: a tool, its arguments and an id, under all accepted names.
    pub const KEYS: [&str; 6] = ["id", "tool", "name", "parameters", "arguments", "params"];

    /// Parses the call at a position of a batch; other keys are ignored.
    ///
    /// ```
    /// use pegboard_runtime::BatchItem;
    ///
    /// let call = serde_json::json!({"name": "github__search", "params": {"q": "x"}}).into();
    /// let item = BatchItem::read(0, &call)?;
    /// assert_eq!((item.id.as_str(), item.tool.to_string().as_str()), (r#""call_0""#, "github__search"));
    /// # Ok::<(), String>(())
    /// ```
    pub fn read(index: usize, call: &RawJson) -> Result<Self, String> {
        item(index, call)
    }
}

/// Parses the arguments of a batch call.
pub(super) fn parse_batch(arguments: &RawJson) -> Result<BatchRequest, String> {
    check_duplicate_keys(arguments, || "the batch".to_owned())?;
    let calls = calls(arguments)?;
    let n_calls = calls.items().count();
    if n_calls > MAX_CALLS {
        return Err(format!("invalid_batch_input: {n_calls} calls exceed the batch limit of {MAX_CALLS}"));
    }
    let items =
        calls.items().enumerate().map(|(index, call)| item(index, &call)).collect::<Result<_, _>>()?;
    Ok(BatchRequest { items, order: order(arguments)? })
}

fn order(arguments: &RawJson) -> Result<BatchOrder, String> {
    let stop_on_error = arguments.get("stopOnError").is_some_and(|stops| stops.as_str() == "true");
    let Some(mode) = non_null_member(arguments, "mode") else {
        return Ok(if stop_on_error {
            BatchOrder::Sequential { stop_on_error }
        } else {
            BatchOrder::Parallel
        });
    };
    match mode.text().as_deref() {
        Some("parallel") if stop_on_error => {
            Err("invalid_batch_input: stopOnError requires mode 'sequential'".to_owned())
        }
        Some("parallel") => Ok(BatchOrder::Parallel),
        Some("sequential") => Ok(BatchOrder::Sequential { stop_on_error }),
        _ => Err("invalid_batch_input: mode must be 'parallel' or 'sequential'".to_owned()),
    }
}

/// Returns the non-empty list of calls, which some models encode as a string.
fn calls(arguments: &RawJson) -> Result<RawJson, String> {
    let none = || "empty_batch: agent__batch received empty calls array (type: object)".to_owned();
    let calls = arguments.get("calls").ok_or_else(none)?;
    let has_calls = |list: &RawJson| list.items().next().is_some();
    if !calls.as_str().starts_with('"') {
        return Some(calls).filter(has_calls).ok_or_else(none);
    }
    let text = calls.text().unwrap_or(Cow::Borrowed(calls.as_str()));
    // Anything after the list is ignored.
    let list = RawJson::parse_first(text.as_ref().to_owned().into()).ok();
    list.filter(has_calls).ok_or_else(|| {
        let length = text.chars().count();
        format!("empty_batch: agent__batch received empty or unparseable calls array (raw string length: {length})")
    })
}

fn item(index: usize, call: &RawJson) -> Result<BatchItem, String> {
    let invalid = || "invalid_batch_input: each call requires non-empty id and tool".to_owned();
    check_duplicate_keys(call, || format!("call {index}"))?;
    let id = match non_null_member(call, "id") {
        None => RawJson::of(&format!("call_{index}")),
        Some(id) => read_id(id).ok_or_else(invalid)?,
    };
    let tool =
        member_by_alias(call, &["tool", "name"])?.and_then(|tool| tool_ref(&tool)).ok_or_else(invalid)?;
    let arguments = member_by_alias(call, &["parameters", "arguments", "params"])?.map(decode_arguments);
    Ok(BatchItem { id, tool, arguments: arguments.map_or_else(CallArguments::default, CallArguments::from) })
}

/// Normalizes an id: a trimmed string, or a number as spelled.
fn read_id(id: RawJson) -> Option<RawJson> {
    if let Some(text) = id.text() {
        let text = text.trim();
        return (!text.is_empty()).then(|| RawJson::of(text));
    }
    id.as_str().starts_with(|first: char| first == '-' || first.is_ascii_digit()).then_some(id)
}

/// Parses the tool of a batch item: a name, or an identity object.
fn tool_ref(tool: &RawJson) -> Option<ToolRef> {
    if tool.is_object() {
        return tool.read::<ToolId>().ok().map(ToolRef::Id);
    }
    let name = tool.text()?;
    let name = name.trim();
    (!name.is_empty()).then(|| ToolRef::Name(name.to_owned()))
}

/// Decodes arguments that some models encode as a string.
fn decode_arguments(arguments: RawJson) -> RawJson {
    let text = arguments.text();
    let object = text.and_then(|text| RawJson::parse(text.into_owned().into()).ok());
    object.filter(RawJson::is_object).unwrap_or(arguments)
}

/// Returns the value found under one of several aliases; if several are present, they must agree. Null counts
/// as absent.
fn member_by_alias(call: &RawJson, names: &[&str]) -> Result<Option<RawJson>, String> {
    let mut given = names.iter().filter_map(|name| non_null_member(call, name));
    let Some(first) = given.next() else { return Ok(None) };
    if given.any(|other| canonical(&other) != canonical(&first)) {
        return Err(format!("invalid_batch_input: {} conflict; give only one of them", names.join(" and ")));
    }
    Ok(Some(first))
}

/// Returns a member that is present and not null.
fn non_null_member(object: &RawJson, name: &str) -> Option<RawJson> {
    object.get(name).filter(is_not_null)
}

fn is_not_null(value: &RawJson) -> bool {
    value.as_str() != "null"
}

/// Rejects duplicate keys: JSON readers differ in which one they take, so the intent is ambiguous.
fn check_duplicate_keys(object: &RawJson, place: impl Fn() -> String) -> Result<(), String> {
    let Some(name) = duplicate_member(object) else { return Ok(()) };
    let name: String = name.chars().take(MAX_QUOTED_CHARS).collect();
    Err(format!("invalid_batch_input: {} has duplicate key '{name}'", place()))
}
