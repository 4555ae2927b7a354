//! Parts of a JSON document by their path: `$.items[0].id`, `$..name`, `$.rows[-3:]`.

mod parse;

use serde_json::Value;

use super::ReadError;
use super::cursor::{Cursor, Place};
use super::cut::quoted;
use super::page::{Reading, counted_more, fitting, room};

pub use parse::BadPath;

/// A path into a JSON document.
///
/// Names, indexes (from the end if negative), slices, wildcards, unions and descents, as in RFC 9535; no filters. The
/// `$` at the beginning may be left out.
///
/// ```
/// use pegboard_runtime::reading::{JsonPath, select, select_one};
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
    segments: Vec<Segment>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    reach: Reach,
    selectors: Vec<Selector>,
}

/// How far down a step looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// At the children of a value.
    Children,
    /// At the children of a value and of everything below it.
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
    /// The path that a text spells.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        Ok(Self { text: text.to_owned(), segments: parse::segments(text)? })
    }

    /// How it is spelled.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The values that it leads to, in the order of the document.
    fn find<'value>(&self, root: &'value Value, budget: &mut Budget) -> Result<Vec<&'value Value>, TooMuch> {
        let mut values = vec![root];
        for segment in &self.segments {
            let mut found = Vec::new();
            for value in values {
                match segment.reach {
                    Reach::Children => segment.select(value, &mut found, budget)?,
                    Reach::Descendants => {
                        let mut waiting = vec![value];
                        while let Some(value) = waiting.pop() {
                            segment.select(value, &mut found, budget)?;
                            let n_waiting = waiting.len();
                            waiting.extend(children(value));
                            // What is pushed last is looked at first.
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

impl Segment {
    fn select<'value>(
        &self,
        value: &'value Value,
        found: &mut Vec<&'value Value>,
        budget: &mut Budget,
    ) -> Result<(), TooMuch> {
        budget.spend(self.selectors.len())?;
        for selector in &self.selectors {
            let n_before = found.len();
            match (selector, value) {
                (Selector::Wildcard, value) => found.extend(children(value)),
                (Selector::Name(name), Value::Object(members)) => found.extend(members.get(name)),
                (Selector::Index(index), Value::Array(items)) => {
                    found.extend(place(*index, items.len()).and_then(|place| items.get(place)));
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

/// The place that an index means in a list, from the end if it is negative.
fn place(index: i64, n_items: usize) -> Option<usize> {
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 { n_items.checked_sub(distance) } else { Some(distance) }
}

/// The items of a slice; a step of zero selects none.
fn slice(items: &[Value], start: Option<i64>, end: Option<i64>, step: i64) -> Vec<&Value> {
    // A bound that lies outside of the list means its nearest end.
    let bound = |index: i64| match place(index, items.len()) {
        Some(place) => place.min(items.len()),
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
    // Backwards the start is included and the end is not, so both lie one higher as bounds of a range.
    let above = |index: i64| match place(index, items.len()) {
        Some(place) => place.saturating_add(1).min(items.len()),
        None if index < 0 => 0,
        None => items.len(),
    };
    let (from, to) = (end.map_or(0, above), start.map_or(items.len(), above));
    items.get(from..to).unwrap_or_default().iter().rev().step_by(stride).collect()
}

/// A path selects more than can be of use.
struct TooMuch;

/// How many values may still be looked at. Without it a path with several descents multiplies what it finds.
struct Budget(usize);

impl Budget {
    /// A few looks for every value, which has two bytes at the least, so that the work is linear in the document.
    fn of(body: &[u8]) -> Self {
        Self(body.len().saturating_mul(2).saturating_add(10_000))
    }

    fn spend(&mut self, n: usize) -> Result<(), TooMuch> {
        self.0 = self.0.checked_sub(n).ok_or(TooMuch)?;
        Ok(())
    }

    /// Pays for a copy of a value.
    fn spend_all(&mut self, value: &Value) -> Result<(), TooMuch> {
        let mut waiting = vec![value];
        while let Some(value) = waiting.pop() {
            self.spend(1)?;
            waiting.extend(children(value));
        }
        Ok(())
    }
}

/// The values that a path leads to, in the order of the document; none is an error.
pub fn select(body: &[u8], path: &JsonPath) -> Result<Vec<Value>, ReadError> {
    let document = parsed(body)?;
    let mut budget = Budget::of(body);
    let found = matches(&document, path, &mut budget)?;
    for value in &found {
        budget.spend_all(value).map_err(|TooMuch| too_much(path))?;
    }
    Ok(found.into_iter().cloned().collect())
}

/// The value that a path leads to, or an array of them if there are several; none is an error.
pub fn select_one(body: &[u8], path: &JsonPath) -> Result<Value, ReadError> {
    let mut found = select(body, path)?;
    Ok(if found.len() == 1 { found.swap_remove(0) } else { Value::Array(found) })
}

/// The document. Nothing is nested so deep that following it takes too much stack: the parser refuses it.
fn parsed(body: &[u8]) -> Result<Value, ReadError> {
    if body.len() > MAX_DOCUMENT_BYTES {
        let problem = format!("it is larger than the {MAX_DOCUMENT_BYTES} bytes that paths are followed in");
        return Err(ReadError::NotJson { problem });
    }
    serde_json::from_slice(body).map_err(|error| ReadError::NotJson { problem: error.to_string() })
}

fn matches<'value>(
    root: &'value Value,
    path: &JsonPath,
    budget: &mut Budget,
) -> Result<Vec<&'value Value>, ReadError> {
    let found = path.find(root, budget).map_err(|TooMuch| too_much(path))?;
    if found.is_empty() {
        return Err(ReadError::NoMatch { path: quoted(path.as_str()) });
    }
    Ok(found)
}

fn too_much(path: &JsonPath) -> ReadError {
    ReadError::TooMuch { path: quoted(path.as_str()) }
}

/// What a path leads to, without the first `n_shown` matches and the first `offset` bytes of the one after them.
pub(super) fn page(
    body: &[u8],
    path: &JsonPath,
    (n_shown, offset): (usize, usize),
    max_bytes: usize,
) -> Result<Reading, ReadError> {
    let document = parsed(body)?;
    let found = matches(&document, path, &mut Budget::of(body))?;
    let place = |n_shown, offset| Cursor(Place::JsonPath { path: path.clone(), n_shown, offset });
    let room = room(max_bytes, &place(found.len(), body.len().saturating_mul(2)));
    let mut content = String::new();
    for (index, value) in found.iter().enumerate().skip(n_shown) {
        let shown = if found.len() == 1 { spread_out(value) } else { format!("{value}\n") };
        let offset = if index == n_shown { shown.floor_char_boundary(offset) } else { 0 };
        let rest = &shown[offset..];
        if content.len() + rest.len() <= room {
            content += rest;
            continue;
        }
        if !content.is_empty() {
            let left = counted_more(found.len() - index, "value");
            return Ok(Reading::cut(content, &left, place(index, 0), max_bytes));
        }
        let part = fitting(rest, room);
        let left = match found.len() - index - 1 {
            0 => "the value goes on".to_owned(),
            n_after => format!("the value goes on, then {}", counted_more(n_after, "value")),
        };
        return Ok(Reading::cut(part.to_owned(), &left, place(index, offset + part.len()), max_bytes));
    }
    Ok(if content.is_empty() {
        Reading::nothing("There is nothing more to read.")
    } else {
        Reading::whole(content)
    })
}

/// How large a document may be to be read as a whole; as a tree it takes several times as much.
const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// One value to be read: a text as it is, and each member or item of anything else on its own line.
fn spread_out(value: &Value) -> String {
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
