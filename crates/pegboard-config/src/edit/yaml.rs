//! Members told apart by lines, as YAML has them.

use serde_json::Value;

use super::page::{Page, Splice};
use super::piece::{Mark, Member, Piece, Shape, Style};
use super::print::Layout;
use super::walk::{Obstacle, Site};

mod pieces;
mod print;

pub(super) use pieces::pieces;
pub(super) use print::{flow, flow_text};

/// Adds a member behind the others of a list or map in lines.
pub(super) fn append(page: Page<'_>, container: &Piece, key: Option<&str>, value: &Value) -> Vec<Splice> {
    let members = container.members();
    let (Some(first), Some(last)) = (members.first(), members.last()) else { return Vec::new() };
    let indent = " ".repeat(page.column(first.start));
    let layout = Layout::lines(page, &indent);
    let text = match key {
        Some(key) => print::entry(key, value, &layout),
        None => print::item(value, &layout),
    };
    vec![Splice::insert(page.end_of_remarks(last.end()), format!("{}{indent}{text}", page.newline()))]
}

/// A whole text for a value, behind what stands there.
pub(super) fn begin(page: Page<'_>, value: &Value) -> Splice {
    let body = print::body(value, &Layout::lines(page, ""));
    let newline = page.newline();
    let starts_line = page.text.is_empty() || page.text.ends_with('\n');
    let before = if starts_line { "" } else { newline };
    Splice::insert(page.text.len(), format!("{before}{body}{newline}"))
}

/// Puts another value in the place of the whole.
pub(super) fn replace_root(page: Page<'_>, root: &Piece, value: &Value) -> Splice {
    Splice::new(root.span.start, root.span.end, print::body(value, &Layout::lines(page, "")))
}

/// Puts another value in the place of one that stands in lines.
pub(super) fn replace(page: Page<'_>, member: &Member, value: &Value) -> Result<Vec<Splice>, Obstacle> {
    let old = &member.value;
    if old.mark != Mark::Nothing {
        return Err(Obstacle::new(old.span, "an anchor, an alias or a tag stands here"));
    }
    let layout = |indent: usize| Layout::lines(page, &" ".repeat(indent));
    let Some((_, key_end)) = member.key else {
        // A dash, and the value behind it.
        let is_empty = old.span.start == old.span.end;
        let column = if is_empty { page.column(member.start) + 2 } else { page.column(old.span.start) };
        let body = print::body(value, &layout(column));
        let space = if is_empty { " " } else { "" };
        return Ok(vec![Splice::new(old.span.start, old.span.end, format!("{space}{body}"))]);
    };
    let colon = colon(page, key_end)?;
    let outer = page.column(member.start);
    let was_block = matches!(old.shape, Shape::Map(Style::Block, _) | Shape::List(Style::Block, _));
    let inner = layout(outer).deeper();
    let short = print::short(value);
    let keeps_its_lines = was_block && page.column(old.span.start) > outer;
    Ok(match short {
        Some(text) if was_block => vec![
            Splice::insert(colon + 1, format!(" {text}")),
            Splice::new(page.end_of_remarks(colon + 1), old.span.end, ""),
        ],
        Some(text) if old.span.start == old.span.end => vec![Splice::insert(colon + 1, format!(" {text}"))],
        Some(text) => vec![Splice::new(old.span.start, old.span.end, text)],
        None if keeps_its_lines => {
            let body = print::body(value, &layout(page.column(old.span.start)));
            vec![Splice::new(old.span.start, old.span.end, body)]
        }
        None => {
            let body = format!("{}{}{}", page.newline(), inner.indent, print::body(value, &inner));
            if was_block {
                vec![Splice::new(page.end_of_remarks(colon + 1), old.span.end, body)]
            } else {
                let end = old.span.end.max(colon + 1);
                vec![Splice::new(colon + 1, end, ""), Splice::insert(page.end_of_remarks(end), body)]
            }
        }
    })
}

/// Takes a member away that stands in lines.
pub(super) fn remove(page: Page<'_>, site: &Site<'_>) -> Result<Vec<Splice>, Obstacle> {
    let members = site.container.members();
    let member = site.member;
    let line = page.line_start(member.start);
    let lines = || {
        let before = site.index.checked_sub(1).and_then(|before| members.get(before));
        let floor = before.map_or(0, |before| page.next_line(before.end())).min(line);
        page.cut(page.remarks_above(line, floor), page.next_line(page.end_of_remarks(member.end())))
    };
    let empty = match site.container.shape {
        Shape::List(..) => "[]",
        Shape::Map(..) | Shape::Scalar => "{}",
    };
    if members.len() > 1 {
        if page.begins_line(member.start) {
            return Ok(vec![lines()]);
        }
        // The first behind a dash: the next takes its place.
        let next = members.get(site.index + 1).map_or(member.end(), |next| next.start);
        return Ok(vec![Splice::new(member.start, next, "")]);
    }
    match site.holder {
        None => Ok(vec![lines()]),
        Some(Member { key: Some((_, key_end)), .. }) if page.begins_line(member.start) => {
            let colon = colon(page, *key_end)?;
            Ok(vec![Splice::insert(colon + 1, format!(" {empty}")), lines()])
        }
        Some(_) => Ok(vec![Splice::new(site.container.span.start, site.container.span.end, empty)]),
    }
}

/// The colon behind a key.
fn colon(page: Page<'_>, key_end: usize) -> Result<usize, Obstacle> {
    let rest = &page.text[key_end..];
    let colon = key_end + rest.len() - rest.trim_start_matches([' ', '\t']).len();
    if page.text[colon..].starts_with(':') {
        return Ok(colon);
    }
    Err(Obstacle::new(crate::tree::Span::new(key_end, key_end), "this key is written with a question mark"))
}
