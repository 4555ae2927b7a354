//! Parses TOML into sections and their lines.

use toml_parser::parser::{Event, EventKind, parse_document};
use toml_parser::{ParseError, Source};

use crate::edit::cst::{CollectionStyle, CstMember, CstNode, CstShape};
use crate::tree::Span;

/// A header and the lines below it; the root section has no header.
#[derive(Debug, Default)]
pub(super) struct TomlSection {
    pub(super) keys: Vec<String>,
    pub(super) header: Option<Span>,
    /// `true` for an array of tables, `[[name]]`.
    pub(super) is_array_table: bool,
    pub(super) lines: Vec<TomlLine>,
}

/// A possibly dotted key and its value.
#[derive(Debug)]
pub(super) struct TomlLine {
    pub(super) keys: Vec<String>,
    pub(super) start: usize,
    pub(super) value: CstNode,
}

impl TomlSection {
    /// Start of the section, unless it is an empty root section.
    pub(super) fn start(&self) -> Option<usize> {
        self.header.map(|header| header.start).or_else(|| Some(self.lines.first()?.start))
    }

    /// End of the last line or the header.
    pub(super) fn end(&self) -> Option<usize> {
        self.lines.last().map(|line| line.value.span.end).or_else(|| Some(self.header?.end))
    }

    /// Full path of a line's value.
    pub(super) fn key_path(&self, line: &TomlLine) -> Vec<String> {
        self.keys.iter().chain(&line.keys).cloned().collect()
    }
}

/// Parses the sections of a valid TOML text.
pub(super) fn sections(text: &str) -> Vec<TomlSection> {
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let mut events: Vec<Event> = Vec::new();
    let mut errors: Vec<ParseError> = Vec::new();
    parse_document(&tokens, &mut events, &mut errors);
    let mut builder = SectionBuilder {
        source,
        sections: vec![TomlSection::default()],
        keys: Vec::new(),
        start: 0,
        open: Vec::new(),
    };
    for event in &events {
        builder.handle(event);
    }
    builder.sections
}

struct SectionBuilder<'t> {
    source: Source<'t>,
    sections: Vec<TomlSection>,
    /// Parts of the current key, and its start.
    keys: Vec<String>,
    start: usize,
    open: Vec<OpenItem>,
}

/// A header or value that is not closed yet.
enum OpenItem {
    Header { start: usize },
    List { start: usize, members: Vec<CstMember> },
    Table { start: usize, members: Vec<CstMember>, key: (Vec<String>, usize, usize) },
}

impl SectionBuilder<'_> {
    fn handle(&mut self, event: &Event) {
        let span = Span::new(event.span().start(), event.span().end());
        match event.kind() {
            EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                self.open.push(OpenItem::Header { start: span.start });
            }
            EventKind::StdTableClose | EventKind::ArrayTableClose => {
                if let Some(OpenItem::Header { start }) = self.open.pop() {
                    self.sections.push(TomlSection {
                        keys: std::mem::take(&mut self.keys),
                        header: Some(Span::new(start, span.end)),
                        is_array_table: event.kind() == EventKind::ArrayTableClose,
                        lines: Vec::new(),
                    });
                }
            }
            EventKind::SimpleKey => self.key(event, span),
            EventKind::InlineTableOpen => {
                self.open.push(OpenItem::Table {
                    start: span.start,
                    members: Vec::new(),
                    key: (Vec::new(), 0, 0),
                });
            }
            EventKind::ArrayOpen => self.open.push(OpenItem::List { start: span.start, members: Vec::new() }),
            EventKind::InlineTableClose | EventKind::ArrayClose => match self.open.pop() {
                Some(OpenItem::List { start, members }) => {
                    self.put(CstNode::new(
                        Span::new(start, span.end),
                        CstShape::List(CollectionStyle::Flow, members),
                    ));
                }
                Some(OpenItem::Table { start, members, .. }) => {
                    self.put(CstNode::new(
                        Span::new(start, span.end),
                        CstShape::Map(CollectionStyle::Flow, members),
                    ));
                }
                Some(OpenItem::Header { .. }) | None => {}
            },
            EventKind::Scalar => self.put(CstNode::new(span, CstShape::Scalar)),
            EventKind::KeySep
            | EventKind::KeyValSep
            | EventKind::ValueSep
            | EventKind::Whitespace
            | EventKind::Comment
            | EventKind::Newline
            | EventKind::Error => {}
        }
    }

    fn key(&mut self, event: &Event, span: Span) {
        let mut key = String::new();
        if let Some(raw) = self.source.get(event) {
            raw.decode_key(&mut key, &mut ());
        }
        if let Some(OpenItem::Table { key: (keys, start, end), .. }) = self.open.last_mut() {
            if keys.is_empty() {
                *start = span.start;
            }
            *end = span.end;
            keys.push(key);
        } else {
            if self.keys.is_empty() {
                self.start = span.start;
            }
            self.keys.push(key);
        }
    }

    fn put(&mut self, value: CstNode) {
        match self.open.last_mut() {
            Some(OpenItem::List { members, .. }) => {
                members.push(CstMember { start: value.span.start, key: None, value });
            }
            Some(OpenItem::Table { members, key, .. }) => {
                let (keys, start, end) = std::mem::take(key);
                // A dotted key is not addressable by any of its parts.
                let key = <[String; 1]>::try_from(keys).ok().map(|[key]| (key, end));
                members.push(CstMember { start, key, value });
            }
            Some(OpenItem::Header { .. }) | None => {
                let line = TomlLine { keys: std::mem::take(&mut self.keys), start: self.start, value };
                self.sections.last_mut().expect("the root section always exists").lines.push(line);
            }
        }
    }
}
