//! How a text in TOML is put together: sections, and the lines in them.

use toml_parser::parser::{Event, EventKind, parse_document};
use toml_parser::{ParseError, Source};

use crate::edit::piece::{Member, Piece, Shape, Style};
use crate::tree::Span;

/// A header and the lines below it; the first section has no header.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) keys: Vec<String>,
    pub(super) header: Option<Span>,
    /// Whether it is one of many under the same name: `[[name]]`.
    pub(super) is_one_of_many: bool,
    pub(super) lines: Vec<Line>,
}

/// A key, of one or more parts, and its value.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) keys: Vec<String>,
    pub(super) start: usize,
    pub(super) value: Piece,
}

impl Section {
    /// Where it begins, unless it is the first and has nothing in it.
    pub(super) fn start(&self) -> Option<usize> {
        self.header.map(|header| header.start).or_else(|| Some(self.lines.first()?.start))
    }

    /// Where the last thing in it ends.
    pub(super) fn end(&self) -> Option<usize> {
        self.lines.last().map(|line| line.value.span.end).or_else(|| Some(self.header?.end))
    }

    /// The whole way to the value of a line.
    pub(super) fn way(&self, line: &Line) -> Vec<String> {
        self.keys.iter().chain(&line.keys).cloned().collect()
    }
}

/// The sections of a text that is TOML.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let mut events: Vec<Event> = Vec::new();
    let mut errors: Vec<ParseError> = Vec::new();
    parse_document(&tokens, &mut events, &mut errors);
    let mut builder =
        Builder { source, sections: vec![Section::default()], keys: Vec::new(), start: 0, open: Vec::new() };
    for event in &events {
        builder.take(event);
    }
    builder.sections
}

struct Builder<'t> {
    source: Source<'t>,
    sections: Vec<Section>,
    /// The parts of the key that is being read, and where it begins.
    keys: Vec<String>,
    start: usize,
    open: Vec<Open>,
}

/// What is open: a header, or a value whose end has not come.
enum Open {
    Header { start: usize },
    List { start: usize, members: Vec<Member> },
    Table { start: usize, members: Vec<Member>, key: (Vec<String>, usize, usize) },
}

impl Builder<'_> {
    fn take(&mut self, event: &Event) {
        let span = Span::new(event.span().start(), event.span().end());
        match event.kind() {
            EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                self.open.push(Open::Header { start: span.start });
            }
            EventKind::StdTableClose | EventKind::ArrayTableClose => {
                if let Some(Open::Header { start }) = self.open.pop() {
                    self.sections.push(Section {
                        keys: std::mem::take(&mut self.keys),
                        header: Some(Span::new(start, span.end)),
                        is_one_of_many: event.kind() == EventKind::ArrayTableClose,
                        lines: Vec::new(),
                    });
                }
            }
            EventKind::SimpleKey => self.key(event, span),
            EventKind::InlineTableOpen => {
                self.open.push(Open::Table {
                    start: span.start,
                    members: Vec::new(),
                    key: (Vec::new(), 0, 0),
                });
            }
            EventKind::ArrayOpen => self.open.push(Open::List { start: span.start, members: Vec::new() }),
            EventKind::InlineTableClose | EventKind::ArrayClose => match self.open.pop() {
                Some(Open::List { start, members }) => {
                    self.put(Piece::new(Span::new(start, span.end), Shape::List(Style::Flow, members)));
                }
                Some(Open::Table { start, members, .. }) => {
                    self.put(Piece::new(Span::new(start, span.end), Shape::Map(Style::Flow, members)));
                }
                Some(Open::Header { .. }) | None => {}
            },
            EventKind::Scalar => self.put(Piece::new(span, Shape::Scalar)),
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
        if let Some(Open::Table { key: (keys, start, end), .. }) = self.open.last_mut() {
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

    fn put(&mut self, value: Piece) {
        match self.open.last_mut() {
            Some(Open::List { members, .. }) => {
                members.push(Member { start: value.span.start, key: None, value });
            }
            Some(Open::Table { members, key, .. }) => {
                let (keys, start, end) = std::mem::take(key);
                // What has more than one part is found by none of them.
                let key = <[String; 1]>::try_from(keys).ok().map(|[key]| (key, end));
                members.push(Member { start, key, value });
            }
            Some(Open::Header { .. }) | None => {
                let line = Line { keys: std::mem::take(&mut self.keys), start: self.start, value };
                self.sections.last_mut().expect("the first section has no header").lines.push(line);
            }
        }
    }
}
