//! Edits of YAML block collections.

use serde_json::Value;

use super::cst::{CollectionStyle, CstMember, CstNode, CstShape, YamlProperty};
use super::cst_edit::{EditConflict, MemberLocation};
use super::print::PrintLayout;
use super::text::{EditText, Splice};

mod parse;
mod print;

pub(super) use parse::parse_cst;
pub(super) use print::{flow, flow_text};

/// Appends a member to a block collection.
pub(super) fn append(
    source: EditText<'_>,
    container: &CstNode,
    key: Option<&str>,
    value: &Value,
) -> Vec<Splice> {
    let members = container.members();
    let (Some(first), Some(last)) = (members.first(), members.last()) else { return Vec::new() };
    let indent = " ".repeat(source.column(first.start));
    let layout = PrintLayout::lines(source, &indent);
    let text = match key {
        Some(key) => print::entry(key, value, &layout),
        None => print::item(value, &layout),
    };
    vec![Splice::insert(source.end_of_comments(last.end()), format!("{}{indent}{text}", source.newline()))]
}

/// Inserts the first value after existing comments.
pub(super) fn first_value(source: EditText<'_>, value: &Value) -> Splice {
    let body = print::body(value, &PrintLayout::lines(source, ""));
    let newline = source.newline();
    let starts_line = source.text.is_empty() || source.text.ends_with('\n');
    let before = if starts_line { "" } else { newline };
    Splice::insert(source.text.len(), format!("{before}{body}{newline}"))
}

/// Replaces the root value.
pub(super) fn replace_root(source: EditText<'_>, root: &CstNode, value: &Value) -> Splice {
    Splice::new(root.span.start, root.span.end, print::body(value, &PrintLayout::lines(source, "")))
}

/// Replaces a value in a block collection.
pub(super) fn replace(
    source: EditText<'_>,
    member: &CstMember,
    value: &Value,
) -> Result<Vec<Splice>, EditConflict> {
    let old = &member.value;
    if old.mark != YamlProperty::Nothing {
        return Err(EditConflict::new(old.span, "the value has an anchor, an alias or a tag"));
    }
    let layout = |indent: usize| PrintLayout::lines(source, &" ".repeat(indent));
    let Some((_, key_end)) = member.key else {
        // A list item: a dash and the value after it.
        let is_empty = old.span.start == old.span.end;
        let column = if is_empty { source.column(member.start) + 2 } else { source.column(old.span.start) };
        let body = print::body(value, &layout(column));
        let space = if is_empty { " " } else { "" };
        return Ok(vec![Splice::new(old.span.start, old.span.end, format!("{space}{body}"))]);
    };
    let colon = colon(source, key_end)?;
    let outer = source.column(member.start);
    let was_block = matches!(
        old.shape,
        CstShape::Map(CollectionStyle::Block, _) | CstShape::List(CollectionStyle::Block, _)
    );
    let inner = layout(outer).indented();
    let short = print::short(value);
    let keeps_its_lines = was_block && source.column(old.span.start) > outer;
    Ok(match short {
        Some(text) if was_block => vec![
            Splice::insert(colon + 1, format!(" {text}")),
            Splice::new(source.end_of_comments(colon + 1), old.span.end, ""),
        ],
        Some(text) if old.span.start == old.span.end => vec![Splice::insert(colon + 1, format!(" {text}"))],
        Some(text) => vec![Splice::new(old.span.start, old.span.end, text)],
        None if keeps_its_lines => {
            let body = print::body(value, &layout(source.column(old.span.start)));
            vec![Splice::new(old.span.start, old.span.end, body)]
        }
        None => {
            let body = format!("{}{}{}", source.newline(), inner.indent, print::body(value, &inner));
            if was_block {
                vec![Splice::new(source.end_of_comments(colon + 1), old.span.end, body)]
            } else {
                let end = old.span.end.max(colon + 1);
                vec![Splice::new(colon + 1, end, ""), Splice::insert(source.end_of_comments(end), body)]
            }
        }
    })
}

/// Removes a member from a block collection.
pub(super) fn remove(
    source: EditText<'_>,
    location: &MemberLocation<'_>,
) -> Result<Vec<Splice>, EditConflict> {
    let members = location.container.members();
    let member = location.member;
    let line = source.line_start(member.start);
    let lines = || {
        let before = location.index.checked_sub(1).and_then(|before| members.get(before));
        let floor = before.map_or(0, |before| source.next_line(before.end())).min(line);
        source.cut(source.comments_above(line, floor), source.next_line(source.end_of_comments(member.end())))
    };
    let empty = match location.container.shape {
        CstShape::List(..) => "[]",
        CstShape::Map(..) | CstShape::Scalar => "{}",
    };
    if members.len() > 1 {
        if source.begins_line(member.start) {
            return Ok(vec![lines()]);
        }
        // The first key after a dash: the next one takes its place.
        let next = members.get(location.index + 1).map_or(member.end(), |next| next.start);
        return Ok(vec![Splice::new(member.start, next, "")]);
    }
    match location.holder {
        None => Ok(vec![lines()]),
        Some(CstMember { key: Some((_, key_end)), .. }) if source.begins_line(member.start) => {
            let colon = colon(source, *key_end)?;
            Ok(vec![Splice::insert(colon + 1, format!(" {empty}")), lines()])
        }
        Some(_) => Ok(vec![Splice::new(location.container.span.start, location.container.span.end, empty)]),
    }
}

/// Returns the offset of the colon after a key.
fn colon(source: EditText<'_>, key_end: usize) -> Result<usize, EditConflict> {
    let rest = &source.text[key_end..];
    let colon = key_end + rest.len() - rest.trim_start_matches([' ', '\t']).len();
    if source.text[colon..].starts_with(':') {
        return Ok(colon);
    }
    Err(EditConflict::new(crate::tree::Span::new(key_end, key_end), "the key uses the explicit '?' syntax"))
}
