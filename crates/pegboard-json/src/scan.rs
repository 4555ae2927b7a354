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
    pub fn object(&mut self, mut member: impl FnMut(Range<usize>, Range<usize>)) -> Result<(), Malformed> {
        let mut walk = || {
            let mut at = match self.enter(self.at)? {
                ContainerStart::Closed(end) => return Ok(end),
                ContainerStart::At(at) => at,
            };
            loop {
                let (key, start) = self.key(at)?;
                let end = self.value_end(start)?;
                member(key, start..end);
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
        };
        self.at = walk().map_err(|error| self.open.malformed(error))?;
        Ok(())
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
