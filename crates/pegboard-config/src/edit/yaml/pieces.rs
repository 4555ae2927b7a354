//! How a text in YAML is put together.

use granit_parser::{Event, Options, Parser, ScalarStyle, Span as Place, StructureStyle};

use crate::edit::piece::{Mark, Member, Piece, Shape, Style};
use crate::tree::Span;

/// What a text is made of. `None` if there is nothing in it.
pub(in crate::edit) fn pieces(text: &str) -> Option<Piece> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder = Builder { text, open: Vec::new() };
    let mut root = None;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, place) = event.ok()?;
        root = root.or(builder.take(&event, place));
    }
    root
}

struct Builder<'t> {
    text: &'t str,
    open: Vec<Open>,
}

/// A list or map whose end has not come.
struct Open {
    style: Style,
    is_map: bool,
    mark: Mark,
    start: usize,
    members: Vec<Member>,
    key: Option<(String, Span)>,
}

impl Builder<'_> {
    fn take(&mut self, event: &Event<'_>, place: Place) -> Option<Piece> {
        let span = place.byte_range().map_or_else(|| Span::new(self.text.len(), self.text.len()), Span::from);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let mark = mark(*anchor, tag.is_some());
                let written = self.text.get(span.start..span.end).unwrap_or_default();
                let end = match style {
                    // Its last lines may be blank, and count.
                    ScalarStyle::Literal | ScalarStyle::Folded if is_kept(written) => span.end,
                    _ => span.start + written.trim_end().len(),
                };
                let piece = Piece { span: Span::new(span.start, end), shape: Shape::Scalar, mark };
                self.put(piece, Some(text.as_ref()))
            }
            Event::Alias(_) => {
                let piece = Piece { span, shape: Shape::Scalar, mark: Mark::Alias };
                let name = self.text.get(span.start..span.end).unwrap_or_default().to_owned();
                self.put(piece, Some(&name))
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.begin((*style, false), mark(*anchor, tag.is_some()), span.start);
                None
            }
            Event::MappingStart(style, anchor, tag) => {
                self.begin((*style, true), mark(*anchor, tag.is_some()), span.start);
                None
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            _ => None,
        }
    }

    fn begin(&mut self, (style, is_map): (StructureStyle, bool), mark: Mark, start: usize) {
        let style = match style {
            StructureStyle::Block => Style::Block,
            StructureStyle::Flow => Style::Flow,
        };
        self.open.push(Open { style, is_map, mark, start, members: Vec::new(), key: None });
    }

    fn end(&mut self, end: Span) -> Option<Piece> {
        let open = self.open.pop()?;
        let span = match (open.style, open.members.as_slice()) {
            // The parser ends these where the next thing begins, with all comments in between.
            (Style::Block, [first, .., last]) => Span::new(first.start, last.end()),
            (Style::Block, [only]) => Span::new(only.start, only.end()),
            (Style::Block, []) => Span::new(open.start, open.start),
            (Style::Flow, _) => Span::new(open.start, end.end),
        };
        let shape = if open.is_map {
            Shape::Map(open.style, open.members)
        } else {
            Shape::List(open.style, open.members)
        };
        self.put(Piece { span, shape, mark: open.mark }, None)
    }

    /// Puts a piece where it belongs. Gives it back if it is the whole.
    fn put(&mut self, mut piece: Piece, text: Option<&str>) -> Option<Piece> {
        let Some(open) = self.open.last_mut() else { return Some(piece) };
        if open.is_map {
            match open.key.take() {
                None => open.key = Some((text.unwrap_or_default().to_owned(), piece.span)),
                Some((key, key_span)) => {
                    if piece.span.start == piece.span.end && piece.mark == Mark::Nothing {
                        piece.span = after_colon(self.text, key_span.end);
                    }
                    let key = Some((key, key_span.end));
                    open.members.push(Member { start: key_span.start, key, value: piece });
                }
            }
        } else {
            let start = match open.style {
                Style::Flow => piece.span.start,
                Style::Block => dash(self.text, open.members.first(), piece.span.start),
            };
            if piece.span.start == piece.span.end && piece.mark == Mark::Nothing {
                piece.span = Span::new(start + 1, start + 1);
            }
            open.members.push(Member { start, key: None, value: piece });
        }
        None
    }
}

fn mark(anchor: usize, has_tag: bool) -> Mark {
    if anchor > 0 || has_tag { Mark::Property } else { Mark::Nothing }
}

/// Whether a text in lines keeps the blank ones at its end: `|+`.
fn is_kept(written: &str) -> bool {
    written.lines().next().unwrap_or_default().split('#').next().unwrap_or_default().contains('+')
}

/// The place of a value that is not written: behind the colon of its key.
fn after_colon(text: &str, key_end: usize) -> Span {
    let rest = &text[key_end..];
    let colon = key_end + rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let at = if text[colon..].starts_with(':') { colon + 1 } else { key_end };
    Span::new(at, at)
}

/// The dash of a value in a list, all of whose dashes stand in one column.
fn dash(text: &str, first: Option<&Member>, value: usize) -> usize {
    let line_of = |at: usize| text[..at].rfind('\n').map_or(0, |end| end + 1);
    let Some(first) = first else { return text[..value].rfind('-').unwrap_or(value) };
    let column = first.start - line_of(first.start);
    let mut line = line_of(value);
    loop {
        let at = line + column;
        if at <= value && text.get(at..).is_some_and(|rest| rest.starts_with('-')) {
            return at;
        }
        if line <= first.start {
            return first.start;
        }
        line = line_of(line - 1);
    }
}
