//! The `jsonpath` view: parts of a JSON document by path, such as `$.items[0].id`, `$..name` or
//! `$.rows[-3:]`.

mod parse;

use serde_json::Value;

use super::ReadError;
use super::cursor::{CursorPosition, PageCursor};
use super::page::{OutputPage, content_capacity, counted_more, fit_lines};
use super::truncate::quoted;

pub use parse::InvalidJsonPath;

/// A path into a JSON document.
///
/// Names, indexes (negative ones count from the end), slices, wildcards, unions and descendants, as in RFC
/// 9535; no filters. The leading `$` is optional.
///
/// ```
/// use pegboard_runtime::output_query::{JsonPath, select, select_one};
/// use serde_json::json;
///
/// let body = br#"{"items": [{"id": 1}, {"id": 2}]}"#;
/// let path = |text| JsonPath::parse(text).unwrap();
/// assert_eq!(select(body, &path("$.items[*].id")).unwrap(), [json!(1), json!(2)]);
/// assert_eq!(select_one(body, &path("items[-1].id")).unwrap(), json!(2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    text: String,
    segments: Vec<JsonPathSegment>,
}

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JsonPathSegment {
    traversal: Traversal,
    selectors: Vec<Selector>,
}

/// Depth at which a segment selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traversal {
    /// The children of a value.
    Children,
    /// The children of a value and of all its descendants.
    Descendants,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selector {
    Name(String),
    Index(i64),
    Slice { start: Option<i64>, end: Option<i64>, step: i64 },
    Wildcard,
}

impl JsonPath {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<Self, InvalidJsonPath> {
        Ok(Self { text: text.to_owned(), segments: parse::segments(text)? })
    }

    /// Returns the source text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the selected values, in document order.
    fn find<'value>(
        &self,
        root: &'value Value,
        budget: &mut VisitBudget,
    ) -> Result<Vec<&'value Value>, TooManyMatches> {
        let mut values = vec![root];
        for segment in &self.segments {
            let mut found = Vec::new();
            for value in values {
                match segment.traversal {
                    Traversal::Children => segment.select(value, &mut found, budget)?,
                    Traversal::Descendants => {
                        let mut waiting = vec![value];
                        while let Some(value) = waiting.pop() {
                            segment.select(value, &mut found, budget)?;
                            let n_waiting = waiting.len();
                            waiting.extend(children(value));
                            // The stack is popped from the end.
                            waiting[n_waiting..].reverse();
                        }
                    }
                }
            }
            values = found;
        }
        Ok(values)
    }
}

impl JsonPathSegment {
    fn select<'value>(
        &self,
        value: &'value Value,
        found: &mut Vec<&'value Value>,
        budget: &mut VisitBudget,
    ) -> Result<(), TooManyMatches> {
        budget.spend(self.selectors.len())?;
        for selector in &self.selectors {
            let n_before = found.len();
            match (selector, value) {
                (Selector::Wildcard, value) => found.extend(children(value)),
                (Selector::Name(name), Value::Object(members)) => found.extend(members.get(name)),
                (Selector::Index(index), Value::Array(items)) => {
                    found.extend(resolve_index(*index, items.len()).and_then(|at| items.get(at)));
                }
                (Selector::Slice { start, end, step }, Value::Array(items)) => {
                    found.extend(slice(items, *start, *end, *step));
                }
                (Selector::Name(_) | Selector::Index(_) | Selector::Slice { .. }, _) => {}
            }
            budget.spend(found.len() - n_before)?;
        }
        Ok(())
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

/// Resolves an index into a list; a negative one counts from the end.
fn resolve_index(index: i64, n_items: usize) -> Option<usize> {
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 { n_items.checked_sub(distance) } else { Some(distance) }
}

/// Returns the items of a slice; a step of zero selects none.
fn slice(items: &[Value], start: Option<i64>, end: Option<i64>, step: i64) -> Vec<&Value> {
    // A bound outside the list is clamped.
    let bound = |index: i64| match resolve_index(index, items.len()) {
        Some(at) => at.min(items.len()),
        None if index < 0 => 0,
        None => items.len(),
    };
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    if stride == 0 {
        return Vec::new();
    }
    if step > 0 {
        let (from, to) = (start.map_or(0, bound), end.map_or(items.len(), bound));
        return items.get(from..to).unwrap_or_default().iter().step_by(stride).collect();
    }
    // Backwards the start is inclusive and the end exclusive, so both shift by one as range bounds.
    let above = |index: i64| match resolve_index(index, items.len()) {
        Some(at) => at.saturating_add(1).min(items.len()),
        None if index < 0 => 0,
        None => items.len(),
    };
    let (from, to) = (end.map_or(0, above), start.map_or(items.len(), above));
    items.get(from..to).unwrap_or_default().iter().rev().step_by(stride).collect()
}

/// The path selects too many values.
struct TooManyMatches;

/// Remaining number of values to visit. Without it, a path with several descendant segments multiplies its
/// matches.
struct VisitBudget(usize);

impl VisitBudget {
    /// A few visits per value, each at least two bytes long, so that the work is linear in the document.
    fn of(body: &[u8]) -> Self {
        Self(body.len().saturating_mul(2).saturating_add(10_000))
    }

    fn spend(&mut self, n: usize) -> Result<(), TooManyMatches> {
        self.0 = self.0.checked_sub(n).ok_or(TooManyMatches)?;
        Ok(())
    }

    /// Accounts for a copy of a value.
    fn spend_all(&mut self, value: &Value) -> Result<(), TooManyMatches> {
        let mut waiting = vec![value];
        while let Some(value) = waiting.pop() {
            self.spend(1)?;
            waiting.extend(children(value));
        }
        Ok(())
    }
}

/// Returns the values that a path selects, in document order; fails if there are none.
pub fn select(body: &[u8], path: &JsonPath) -> Result<Vec<Value>, ReadError> {
    let document = parsed(body)?;
    let mut budget = VisitBudget::of(body);
    let found = matches(&document, path, &mut budget)?;
    for value in &found {
        budget.spend_all(value).map_err(|TooManyMatches| too_much(path))?;
    }
    Ok(found.into_iter().cloned().collect())
}

/// Returns the value that a path selects, or an array if there are several; fails if there are none.
pub fn select_one(body: &[u8], path: &JsonPath) -> Result<Value, ReadError> {
    let mut found = select(body, path)?;
    Ok(if found.len() == 1 { found.swap_remove(0) } else { Value::Array(found) })
}

/// Parses the document. The parser limits the nesting depth, and thereby the stack used to follow a path.
fn parsed(body: &[u8]) -> Result<Value, ReadError> {
    if body.len() > MAX_DOCUMENT_BYTES {
        let problem = format!("it exceeds the limit of {MAX_DOCUMENT_BYTES} bytes for paths");
        return Err(ReadError::NotJson { problem });
    }
    serde_json::from_slice(body).map_err(|error| ReadError::NotJson { problem: error.to_string() })
}

fn matches<'value>(
    root: &'value Value,
    path: &JsonPath,
    budget: &mut VisitBudget,
) -> Result<Vec<&'value Value>, ReadError> {
    let found = path.find(root, budget).map_err(|TooManyMatches| too_much(path))?;
    if found.is_empty() {
        return Err(ReadError::NoMatch { path: quoted(path.as_str()) });
    }
    Ok(found)
}

fn too_much(path: &JsonPath) -> ReadError {
    ReadError::TooManyMatches { path: quoted(path.as_str()) }
}

/// Returns the matches of a path, skipping the first `n_shown` and the first `offset` bytes of the next one.
pub(super) fn page(
    body: &[u8],
    path: &JsonPath,
    (n_shown, offset): (usize, usize),
    max_bytes: usize,
) -> Result<OutputPage, ReadError> {
    let document = parsed(body)?;
    let found = matches(&document, path, &mut VisitBudget::of(body))?;
    let cursor_at =
        |n_shown, offset| PageCursor(CursorPosition::JsonPath { path: path.clone(), n_shown, offset });
    let room = content_capacity(max_bytes, &cursor_at(found.len(), body.len().saturating_mul(2)));
    let mut content = String::new();
    for (index, value) in found.iter().enumerate().skip(n_shown) {
        let shown = if found.len() == 1 { format_value(value) } else { format!("{value}\n") };
        let offset = if index == n_shown { shown.floor_char_boundary(offset) } else { 0 };
        let rest = &shown[offset..];
        if content.len() + rest.len() <= room {
            content += rest;
            continue;
        }
        if !content.is_empty() {
            let left = counted_more(found.len() - index, "value");
            return Ok(OutputPage::partial(content, &left, cursor_at(index, 0), max_bytes));
        }
        let part = fit_lines(rest, room);
        let left = match found.len() - index - 1 {
            0 => "the value goes on".to_owned(),
            n_after => format!("the value goes on, then {}", counted_more(n_after, "value")),
        };
        return Ok(OutputPage::partial(
            part.to_owned(),
            &left,
            cursor_at(index, offset + part.len()),
            max_bytes,
        ));
    }
    Ok(if content.is_empty() {
        OutputPage::empty("There is nothing more to read.")
    } else {
        OutputPage::complete(content)
    })
}

/// Maximum size of a document that is parsed; its tree takes several times as much memory.
const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// Formats one value: a string as it is, anything else with one member or item per line.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if !items.is_empty() => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            format!("[\n{}\n]", items.join(",\n"))
        }
        Value::Object(members) if !members.is_empty() => {
            let member = |(key, value): (&String, &Value)| format!("{}: {value}", Value::from(key.as_str()));
            let members: Vec<String> = members.iter().map(member).collect();
            format!("{{\n{}\n}}", members.join(",\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}
