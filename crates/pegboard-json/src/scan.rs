//! One pass over JSON bytes: is it well-formed, how deep, and where are the members of an object.

mod skip;
mod text;
mod token;

use std::ops::Range;

pub use skip::{items, members, next};
pub use text::{said, spells};

/// How deep a message may nest if nobody says otherwise.
pub const MAX_DEPTH: usize = 128;

/// Why bytes are no JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They are not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// They break JSON's grammar.
    #[error("not JSON, at byte {at}")]
    NotJson {
        /// Where.
        at: usize,
    },
    /// They nest too deep.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// How deep they may nest.
        limit: usize,
    },
}

/// Where the one value of `bytes` is, if there is exactly one and it is well-formed.
pub fn whole(bytes: &[u8], max_depth: usize) -> Result<Range<usize>, Malformed> {
    let mut scanner = Scanner::new(bytes, max_depth)?;
    let span = scanner.value()?;
    scanner.finish()?;
    Ok(span)
}

/// Walks over bytes that nobody has checked yet, and checks what it passes.
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    open: Open,
}

impl<'a> Scanner<'a> {
    /// Stands before the first value of `bytes`, which must be UTF-8.
    pub fn new(bytes: &'a [u8], max_depth: usize) -> Result<Self, Malformed> {
        std::str::from_utf8(bytes).map_err(|_| Malformed::NotText)?;
        let open = Open { innermost: 0, outer: Vec::new(), depth: 0, limit: max_depth };
        Ok(Self { bytes, at: token::space(bytes, 0), open })
    }

    /// The byte that it stands before.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Passes one value and the white space before it.
    pub fn value(&mut self) -> Result<Range<usize>, Malformed> {
        let start = token::space(self.bytes, self.at);
        self.at = self.value_end(start).map_err(|problem| self.open.malformed(problem))?;
        Ok(start..self.at)
    }

    /// Passes the object that it stands before, and hands over where each key (with its quotes) and value is.
    pub fn object(&mut self, mut member: impl FnMut(Range<usize>, Range<usize>)) -> Result<(), Malformed> {
        let mut walk = || {
            let mut at = match self.enter(self.at)? {
                Entered::Closed(end) => return Ok(end),
                Entered::At(at) => at,
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
                    _ => return Err(Problem::At(behind)),
                }
            }
        };
        self.at = walk().map_err(|problem| self.open.malformed(problem))?;
        Ok(())
    }

    /// Makes sure that nothing but white space is left.
    pub fn finish(self) -> Result<(), Malformed> {
        let end = token::space(self.bytes, self.at);
        if end == self.bytes.len() { Ok(()) } else { Err(Malformed::NotJson { at: end }) }
    }

    /// The end of the value that begins at `at`.
    fn value_end(&mut self, mut at: usize) -> Result<usize, Problem> {
        let floor = self.open.depth;
        loop {
            let end = match self.bytes.get(at) {
                Some(b'"') => token::string(self.bytes, at).map_err(Problem::At)?,
                Some(b'{' | b'[') => match self.enter(at)? {
                    Entered::At(first) => {
                        at = self.item(first)?;
                        continue;
                    }
                    Entered::Closed(end) => end,
                },
                _ => token::scalar(self.bytes, at).map_err(Problem::At)?,
            };
            match self.leave(end, floor)? {
                Left::All(end) => return Ok(end),
                Left::Before(next) => at = next,
            }
        }
    }

    /// Goes into the object or array at `at`, up to its first key or item.
    fn enter(&mut self, at: usize) -> Result<Entered, Problem> {
        let kind = if self.bytes.get(at) == Some(&b'{') { Kind::Object } else { Kind::Array };
        self.open.push(kind)?;
        let first = token::space(self.bytes, at + 1);
        if self.bytes.get(first) == Some(&kind.closing()) {
            self.open.pop();
            return Ok(Entered::Closed(first + 1));
        }
        Ok(Entered::At(first))
    }

    /// Behind a value: out of all that ends here, down to `floor`, and up to the next value.
    fn leave(&mut self, mut at: usize, floor: usize) -> Result<Left, Problem> {
        while self.open.depth > floor {
            at = token::space(self.bytes, at);
            match self.bytes.get(at) {
                Some(b',') => return self.item(token::space(self.bytes, at + 1)).map(Left::Before),
                Some(&byte) if byte == self.open.kind().closing() => self.open.pop(),
                _ => return Err(Problem::At(at)),
            }
            at += 1;
        }
        Ok(Left::All(at))
    }

    /// Where the value begins of what stands at `at`: behind its key if it is a member.
    fn item(&self, at: usize) -> Result<usize, Problem> {
        match self.open.kind() {
            Kind::Object => self.key(at).map(|(_, start)| start),
            Kind::Array => Ok(at),
        }
    }

    /// The key at `at`, and where its value begins.
    fn key(&self, at: usize) -> Result<(Range<usize>, usize), Problem> {
        if self.bytes.get(at) != Some(&b'"') {
            return Err(Problem::At(at));
        }
        let end = token::string(self.bytes, at).map_err(Problem::At)?;
        let colon = token::space(self.bytes, end);
        if self.bytes.get(colon) != Some(&b':') {
            return Err(Problem::At(colon));
        }
        Ok((at..end, token::space(self.bytes, colon + 1)))
    }
}

/// What happened at an opening bracket.
enum Entered {
    /// It stands before its first key or item.
    At(usize),
    /// It was empty, and this is its end.
    Closed(usize),
}

/// What was left behind a value.
enum Left {
    /// Everything; this is the end.
    All(usize),
    /// There is another value here.
    Before(usize),
}

/// Why the scanner stopped, small enough for registers.
#[derive(Clone, Copy)]
enum Problem {
    At(usize),
    TooDeep,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array,
    Object,
}

impl Kind {
    fn closing(self) -> u8 {
        match self {
            Self::Array => b']',
            Self::Object => b'}',
        }
    }
}

/// The brackets that are open, one bit each: 64 levels without an allocation.
struct Open {
    innermost: u64,
    outer: Vec<u64>,
    depth: usize,
    limit: usize,
}

impl Open {
    fn push(&mut self, kind: Kind) -> Result<(), Problem> {
        if self.depth >= self.limit {
            return Err(Problem::TooDeep);
        }
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.innermost);
        }
        self.innermost = self.innermost << 1 | u64::from(kind == Kind::Object);
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

    fn kind(&self) -> Kind {
        if self.innermost & 1 == 1 { Kind::Object } else { Kind::Array }
    }

    fn malformed(&self, problem: Problem) -> Malformed {
        match problem {
            Problem::At(at) => Malformed::NotJson { at },
            Problem::TooDeep => Malformed::TooDeep { limit: self.limit },
        }
    }
}
