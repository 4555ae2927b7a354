//! Single-pass scanner over JSON bytes: validates syntax and depth, and locates members.

mod skip;
mod text;
mod token;

use std::ops::Range;

pub use skip::{items, members, next_element};
pub use text::{decode_string, string_equals};

/// Default limit on the nesting depth of a message.
pub const MAX_DEPTH: usize = 128;

/// Reason why bytes are not a valid JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// The bytes are not valid JSON.
    #[error("not JSON, at byte {at}")]
    NotJson {
        /// Byte offset of the error.
        at: usize,
    },
    /// The value nests too deep.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// Maximum depth.
        limit: usize,
    },
}

/// Returns the span of the value in `bytes`, which must hold exactly one well-formed value.
pub fn single_value(bytes: &[u8], max_depth: usize) -> Result<Range<usize>, Malformed> {
    let mut scanner = Scanner::new(bytes, max_depth)?;
    let span = scanner.value()?;
    scanner.finish()?;
    Ok(span)
}

/// Scanner over unvalidated bytes; validates everything it passes.
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    open: OpenContainers,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner positioned before the first value of `bytes`, which must be UTF-8.
    pub fn new(bytes: &'a [u8], max_depth: usize) -> Result<Self, Malformed> {
        std::str::from_utf8(bytes).map_err(|_| Malformed::NotText)?;
        let open = OpenContainers { innermost: 0, outer: Vec::new(), depth: 0, limit: max_depth };
        Ok(Self { bytes, at: token::space(bytes, 0), open })
    }

    /// Returns the next byte.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips white space and one value; returns the span of the value.
    pub fn value(&mut self) -> Result<Range<usize>, Malformed> {
        let start = token::space(self.bytes, self.at);
        self.at = self.value_end(start).map_err(|error| self.open.malformed(error))?;
        Ok(start..self.at)
    }

    /// Skips the object at the current position and reports the span of each key (with its quotes) and value.
    /// If a value is an object with few members, their spans come along, at no further cost.
    pub fn object(
        &mut self,
        mut member: impl FnMut(Range<usize>, Range<usize>, Option<&MemberSpans>),
    ) -> Result<(), Malformed> {
        let walked = self.walk_members(self.at, |scanner, key, start| {
            if scanner.bytes.get(start) != Some(&b'{') {
                let end = scanner.value_end(start)?;
                member(key, start..end, None);
                return Ok(end);
            }
            let mut inner = MemberSpans::default();
            let end = scanner.walk_members(start, |scanner, key, value| {
                let end = scanner.value_end(value)?;
                inner.push(key.start - start..key.end - start, value - start..end - start);
                Ok(end)
            })?;
            member(key, start..end, inner.complete());
            Ok(end)
        });
        self.at = walked.map_err(|error| self.open.malformed(error))?;
        Ok(())
    }

    /// Walks over the object at `at`; `value` returns the end of each value. Returns the end of the object.
    fn walk_members(
        &mut self,
        at: usize,
        mut value: impl FnMut(&mut Self, Range<usize>, usize) -> Result<usize, ScanError>,
    ) -> Result<usize, ScanError> {
        let mut at = match self.enter(at)? {
            ContainerStart::Closed(end) => return Ok(end),
            ContainerStart::At(at) => at,
        };
        loop {
            let (key, start) = self.key(at)?;
            let end = value(self, key, start)?;
            let behind = token::space(self.bytes, end);
            match self.bytes.get(behind) {
                Some(b',') => at = token::space(self.bytes, behind + 1),
                Some(b'}') => {
                    self.open.pop();
                    return Ok(behind + 1);
                }
                _ => return Err(ScanError::At(behind)),
            }
        }
    }

    /// Checks that only white space is left.
    pub fn finish(self) -> Result<(), Malformed> {
        let end = token::space(self.bytes, self.at);
        if end == self.bytes.len() { Ok(()) } else { Err(Malformed::NotJson { at: end }) }
    }

    /// Returns the end of the value that begins at `at`.
    fn value_end(&mut self, mut at: usize) -> Result<usize, ScanError> {
        let floor = self.open.depth;
        loop {
            let end = match self.bytes.get(at) {
                Some(b'"') => token::string(self.bytes, at).map_err(ScanError::At)?,
                Some(b'{' | b'[') => match self.enter(at)? {
                    ContainerStart::At(first) => {
                        at = self.item(first)?;
                        continue;
                    }
                    ContainerStart::Closed(end) => end,
                },
                _ => token::scalar(self.bytes, at).map_err(ScanError::At)?,
            };
            match self.leave(end, floor)? {
                ValueEnd::All(end) => return Ok(end),
                ValueEnd::Before(next) => at = next,
            }
        }
    }

    /// Enters the object or array at `at`, up to its first key or item.
    fn enter(&mut self, at: usize) -> Result<ContainerStart, ScanError> {
        let kind =
            if self.bytes.get(at) == Some(&b'{') { ContainerKind::Object } else { ContainerKind::Array };
        self.open.push(kind)?;
        let first = token::space(self.bytes, at + 1);
        if self.bytes.get(first) == Some(&kind.closing()) {
            self.open.pop();
            return Ok(ContainerStart::Closed(first + 1));
        }
        Ok(ContainerStart::At(first))
    }

    /// Leaves all containers that end at `at`, down to depth `floor`, and moves on to the next value.
    fn leave(&mut self, mut at: usize, floor: usize) -> Result<ValueEnd, ScanError> {
        while self.open.depth > floor {
            at = token::space(self.bytes, at);
            match self.bytes.get(at) {
                Some(b',') => return self.item(token::space(self.bytes, at + 1)).map(ValueEnd::Before),
                Some(&byte) if byte == self.open.kind().closing() => self.open.pop(),
                _ => return Err(ScanError::At(at)),
            }
            at += 1;
        }
        Ok(ValueEnd::All(at))
    }

    /// Returns the start of the value at `at`: behind the key if the container is an object.
    fn item(&self, at: usize) -> Result<usize, ScanError> {
        match self.open.kind() {
            ContainerKind::Object => self.key(at).map(|(_, start)| start),
            ContainerKind::Array => Ok(at),
        }
    }

    /// Returns the key at `at` and the start of its value.
    fn key(&self, at: usize) -> Result<(Range<usize>, usize), ScanError> {
        if self.bytes.get(at) != Some(&b'"') {
            return Err(ScanError::At(at));
        }
        let end = token::string(self.bytes, at).map_err(ScanError::At)?;
        let colon = token::space(self.bytes, end);
        if self.bytes.get(colon) != Some(&b':') {
            return Err(ScanError::At(colon));
        }
        Ok((at..end, token::space(self.bytes, colon + 1)))
    }
}

/// Position of a member in its object: of its key, with the quotes, and of its value.
#[derive(Clone, Copy, Debug, Default)]
struct MemberSpan {
    key: (u32, u32),
    value: (u32, u32),
}

/// Maximum number of members that are collected.
const MAX_SPANS: usize = 12;

/// Positions of the members of an object, in order.
#[derive(Clone, Debug, Default)]
pub struct MemberSpans {
    spans: [MemberSpan; MAX_SPANS],
    len: usize,
    is_incomplete: bool,
}

impl MemberSpans {
    pub(crate) fn push(&mut self, key: Range<usize>, value: Range<usize>) {
        let end = u32::try_from(value.end).ok();
        let (Some(span), Some(end)) = (self.spans.get_mut(self.len), end) else {
            self.is_incomplete = true;
            return;
        };
        // Everything before the end is smaller.
        let before = |at: usize| u32::try_from(at).unwrap_or(end);
        *span = MemberSpan { key: (before(key.start), before(key.end)), value: (before(value.start), end) };
        self.len += 1;
    }

    /// Removes a member, with the text that goes with it: `n_bytes` before the next one.
    pub(crate) fn remove(&mut self, index: usize, n_bytes: usize) {
        let n_bytes = u32::try_from(n_bytes).unwrap_or(u32::MAX);
        let before = |at: u32| at.saturating_sub(n_bytes);
        self.spans.copy_within(index + 1..self.len, index);
        self.len -= 1;
        for span in &mut self.spans[index..self.len] {
            span.key = (before(span.key.0), before(span.key.1));
            span.value = (before(span.value.0), before(span.value.1));
        }
    }

    /// Returns the positions, unless there are too many members.
    pub(crate) fn complete(&self) -> Option<&Self> {
        (!self.is_incomplete).then_some(self)
    }

    /// Returns the position of the value with this name in the scanned text.
    pub(crate) fn find(&self, text: &[u8], name: &str) -> Option<Range<usize>> {
        let members = &self.spans[..self.len];
        let found = members
            .iter()
            .find(|member| string_equals(&text[member.key.0 as usize..member.key.1 as usize], name))?;
        Some(found.value.0 as usize..found.value.1 as usize)
    }

    /// Returns `true` if a member of the scanned text has one of these names.
    pub(crate) fn has_any(&self, text: &[u8], names: &[&str]) -> bool {
        self.spans[..self.len].iter().any(|member| {
            let key = &text[member.key.0 as usize..member.key.1 as usize];
            names.iter().any(|name| string_equals(key, name))
        })
    }

    /// Iterates over the spans of each key (with its quotes) and value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let span = |(start, end): (u32, u32)| start as usize..end as usize;
        self.spans.iter().take(self.len).map(move |member| (span(member.key), span(member.value)))
    }
}

/// Position after an opening bracket.
enum ContainerStart {
    /// Before the first key or item.
    At(usize),
    /// Behind an empty container.
    Closed(usize),
}

/// Position after a value.
enum ValueEnd {
    /// Behind the outermost value.
    All(usize),
    /// Before another value.
    Before(usize),
}

/// Scan failure, small enough to be returned in registers.
#[derive(Clone, Copy)]
enum ScanError {
    At(usize),
    TooDeep,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ContainerKind {
    Array,
    Object,
}

impl ContainerKind {
    fn closing(self) -> u8 {
        match self {
            Self::Array => b']',
            Self::Object => b'}',
        }
    }
}

/// Stack of open containers, one bit each: 64 levels without an allocation.
struct OpenContainers {
    innermost: u64,
    outer: Vec<u64>,
    depth: usize,
    limit: usize,
}

impl OpenContainers {
    fn push(&mut self, kind: ContainerKind) -> Result<(), ScanError> {
        if self.depth >= self.limit {
            return Err(ScanError::TooDeep);
        }
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.innermost);
        }
        self.innermost = self.innermost << 1 | u64::from(kind == ContainerKind::Object);
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.innermost >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.innermost = self.outer.pop().expect("every full word was pushed");
        }
    }

    fn kind(&self) -> ContainerKind {
        if self.innermost & 1 == 1 { ContainerKind::Object } else { ContainerKind::Array }
    }

    fn malformed(&self, error: ScanError) -> Malformed {
        match error {
            ScanError::At(at) => Malformed::NotJson { at },
            ScanError::TooDeep => Malformed::TooDeep { limit: self.limit },
        }
    }
}
