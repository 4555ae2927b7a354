//! Parses YAML into a concrete syntax tree.

use granit_parser::{Event, Options, Parser, ScalarStyle, Span as ParserSpan, StructureStyle};

use crate::edit::cst::{CollectionStyle, CstMember, CstNode, CstShape, YamlProperty};
use crate::tree::Span;

/// Parses a text. Returns `None` if it is empty or invalid.
pub(in crate::edit) fn parse_cst(text: &str) -> Option<CstNode> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder = CstBuilder { text, open: Vec::new() };
    let mut root = None;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, parser_span) = event.ok()?;
        root = root.or(builder.handle(&event, parser_span));
    }
    root
}

struct CstBuilder<'t> {
    text: &'t str,
    open: Vec<OpenCollection>,
}

/// A collection that is not closed yet.
struct OpenCollection {
    style: CollectionStyle,
    is_map: bool,
    mark: YamlProperty,
    start: usize,
    members: Vec<CstMember>,
    key: Option<(String, Span)>,
}

impl CstBuilder<'_> {
    fn handle(&mut self, event: &Event<'_>, parser_span: ParserSpan) -> Option<CstNode> {
        let span =
            parser_span.byte_range().map_or_else(|| Span::new(self.text.len(), self.text.len()), Span::from);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let mark = mark(*anchor, tag.is_some());
                let written = self.text.get(span.start..span.end).unwrap_or_default();
                let end = match style {
                    // Trailing blank lines are part of the value.
                    ScalarStyle::Literal | ScalarStyle::Folded if keeps_blank_lines(written) => span.end,
                    _ => span.start + written.trim_end().len(),
                };
                let node = CstNode { span: Span::new(span.start, end), shape: CstShape::Scalar, mark };
                self.put(node, Some(text.as_ref()))
            }
            Event::Alias(_) => {
                let node = CstNode { span, shape: CstShape::Scalar, mark: YamlProperty::Alias };
                let name = self.text.get(span.start..span.end).unwrap_or_default().to_owned();
                self.put(node, Some(&name))
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

    fn begin(&mut self, (style, is_map): (StructureStyle, bool), mark: YamlProperty, start: usize) {
        let style = match style {
            StructureStyle::Block => CollectionStyle::Block,
            StructureStyle::Flow => CollectionStyle::Flow,
        };
        self.open.push(OpenCollection { style, is_map, mark, start, members: Vec::new(), key: None });
    }

    fn end(&mut self, end: Span) -> Option<CstNode> {
        let open = self.open.pop()?;
        let span = match (open.style, open.members.as_slice()) {
            // The parser ends block collections at the next token, after any comments.
            (CollectionStyle::Block, [first, .., last]) => Span::new(first.start, last.end()),
            (CollectionStyle::Block, [only]) => Span::new(only.start, only.end()),
            (CollectionStyle::Block, []) => Span::new(open.start, open.start),
            (CollectionStyle::Flow, _) => Span::new(open.start, end.end),
        };
        let shape = if open.is_map {
            CstShape::Map(open.style, open.members)
        } else {
            CstShape::List(open.style, open.members)
        };
        self.put(CstNode { span, shape, mark: open.mark }, None)
    }

    /// Adds a node to its parent. Returns it if it is the root.
    fn put(&mut self, mut node: CstNode, text: Option<&str>) -> Option<CstNode> {
        let Some(open) = self.open.last_mut() else { return Some(node) };
        if open.is_map {
            match open.key.take() {
                None => open.key = Some((text.unwrap_or_default().to_owned(), node.span)),
                Some((key, key_span)) => {
                    if node.span.start == node.span.end && node.mark == YamlProperty::Nothing {
                        node.span = after_colon(self.text, key_span.end);
                    }
                    let key = Some((key, key_span.end));
                    open.members.push(CstMember { start: key_span.start, key, value: node });
                }
            }
        } else {
            let start = match open.style {
                CollectionStyle::Flow => node.span.start,
                CollectionStyle::Block => dash(self.text, open.members.first(), node.span.start),
            };
            if node.span.start == node.span.end && node.mark == YamlProperty::Nothing {
                node.span = Span::new(start + 1, start + 1);
            }
            open.members.push(CstMember { start, key: None, value: node });
        }
        None
    }
}

fn mark(anchor: usize, has_tag: bool) -> YamlProperty {
    if anchor > 0 || has_tag { YamlProperty::Property } else { YamlProperty::Nothing }
}

/// Returns `true` if a block scalar keeps trailing blank lines: `|+`.
fn keeps_blank_lines(written: &str) -> bool {
    written.lines().next().unwrap_or_default().split('#').next().unwrap_or_default().contains('+')
}

/// Returns the span of a missing value: after the colon of its key.
fn after_colon(text: &str, key_end: usize) -> Span {
    let rest = &text[key_end..];
    let colon = key_end + rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let at = if text[colon..].starts_with(':') { colon + 1 } else { key_end };
    Span::new(at, at)
}

/// Returns the offset of a list item's dash; all dashes of a list are in the same column.
fn dash(text: &str, first: Option<&CstMember>, value: usize) -> usize {
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
