//! Edits of flow collections, with brackets and commas: JSON, and the inline parts of YAML and TOML.

use super::cst::{CstMember, CstNode};
use super::print::{PrintLayout, ValuePrinter};
use super::text::{EditText, Splice};
use crate::source::ConfigFormat;

/// Appends a member.
pub(super) fn append(source: EditText<'_>, container: &CstNode, print: &ValuePrinter<'_>) -> Vec<Splice> {
    match container.members().last() {
        Some(last) => append_after(source, container, last, print),
        None => vec![fill(source, container, print)],
    }
}

fn append_after(
    source: EditText<'_>,
    container: &CstNode,
    last: &CstMember,
    print: &ValuePrinter<'_>,
) -> Vec<Splice> {
    let comma = source.comma_after(last.end());
    let after = comma.map_or(last.end(), |comma| comma + 1);
    let trailing = if comma.is_some() { "," } else { "" };
    let mut splices = Vec::new();
    if comma.is_none() {
        splices.push(Splice::insert(last.end(), ","));
    }
    if source.begins_line(last.start) {
        let indent = source.indentation(last.start);
        let member = print.member(&PrintLayout::lines(source, indent));
        let text = format!("{}{indent}{member}{trailing}", source.newline());
        splices.push(Splice::insert(source.end_of_comments(after), text));
    } else {
        let member = print.member(&PrintLayout::one_line(source));
        let space = if is_tight(source, container) { "" } else { " " };
        splices.push(Splice::insert(after, format!("{space}{member}{trailing}")));
    }
    splices
}

/// Inserts the first member of an empty collection.
fn fill(source: EditText<'_>, container: &CstNode, print: &ValuePrinter<'_>) -> Splice {
    let (open, close) = (container.span.start, container.span.end.saturating_sub(1));
    let outer = source.indentation(open);
    if source.text[open + 1..close].trim().is_empty() {
        let is_line = source.format != ConfigFormat::Json || is_one_line(source);
        let text = if is_line {
            let pad = if source.format == ConfigFormat::Toml && source.text[open..].starts_with('{') {
                " "
            } else {
                ""
            };
            format!("{pad}{}{pad}", print.member(&PrintLayout::one_line(source)))
        } else {
            let newline = source.newline();
            let layout = PrintLayout::lines(source, outer).indented();
            format!("{newline}{}{}{newline}{outer}", layout.indent, print.member(&layout))
        };
        return Splice::new(open + 1, close, text);
    }
    if source.begins_line(close) {
        let layout = PrintLayout::lines(source, source.indentation(close)).indented();
        let text = format!("{}{}{}", layout.indent, print.member(&layout), source.newline());
        return Splice::insert(source.line_start(close), text);
    }
    Splice::insert(close, format!("{} ", print.member(&PrintLayout::one_line(source))))
}

/// Removes a member, with the comma that is no longer needed.
pub(super) fn remove(source: EditText<'_>, container: &CstNode, index: usize) -> Vec<Splice> {
    let members = container.members();
    let Some(member) = members.get(index) else { return Vec::new() };
    let before = index.checked_sub(1).and_then(|before| members.get(before));
    let comma = source.comma_after(member.end());
    let after = comma.map_or(member.end(), |comma| comma + 1);
    let (open, close) = (container.span.start, container.span.end.saturating_sub(1));
    let floor = before.map_or(open + 1, CstMember::end);
    let comma_before = before.and_then(|before| source.comma_after(before.end()));
    let is_last = index + 1 == members.len();
    let is_own_line = source.begins_line(member.start)
        && source.is_line_done(after)
        && source.line_start(member.start) > open;
    let cut = if is_own_line {
        let line = source.line_start(member.start);
        let above = source.comments_above(line, source.next_line(floor).min(line));
        source.cut(above, source.next_line(source.end_of_comments(after)))
    } else {
        let gap = |from: usize| &source.text[from..member.start];
        let from = match comma_before {
            Some(comma) if is_last && gap(comma + 1).trim().is_empty() => comma + 1,
            _ => member.start,
        };
        let rest = &source.text[after..];
        let spaces = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        Splice::new(from, if is_last { after } else { after + spaces }, "")
    };
    if members.len() == 1 {
        let left = format!(
            "{}{}",
            &source.text[open + 1..cut.span.start.max(open + 1)],
            &source.text[cut.span.end..close]
        );
        if left.trim().is_empty() {
            return vec![Splice::new(open + 1, close, "")];
        }
    }
    match comma_before.filter(|_| is_last && comma.is_none()) {
        // The comma is adjacent, so that a single splice removes both.
        Some(comma) if comma + 1 == cut.span.start => vec![Splice::new(comma, cut.span.end, "")],
        Some(comma) => vec![Splice::new(comma, comma + 1, ""), cut],
        None => vec![cut],
    }
}

/// Replaces a value.
pub(super) fn replace(
    source: EditText<'_>,
    start: usize,
    value: &CstNode,
    print: &ValuePrinter<'_>,
) -> Vec<Splice> {
    let layout = if source.begins_line(start) {
        PrintLayout::lines(source, source.indentation(start))
    } else {
        PrintLayout::one_line(source)
    };
    vec![Splice::new(value.span.start, value.span.end, print.value(&layout))]
}

/// Returns `true` if there is no space after commas.
fn is_tight(source: EditText<'_>, container: &CstNode) -> bool {
    match container.members() {
        [.., before, last] => source.comma_after(before.end()).is_some_and(|comma| comma + 1 == last.start),
        _ => source.format == ConfigFormat::Json && is_one_line(source) && !source.text.contains(": "),
    }
}

/// Returns `true` if the whole text is a single line with content.
fn is_one_line(source: EditText<'_>) -> bool {
    let text = source.text.trim();
    !text.contains('\n') && text != "{}"
}
