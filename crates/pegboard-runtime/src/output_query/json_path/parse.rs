//! The JSON path parser.

use super::{JsonPathSegment, Selector, Traversal};

/// Maximum length of a path.
const MAX_BYTES: usize = 512;

/// Error of parsing a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJsonPath {
    /// The path exceeds the maximum length.
    #[error("the path is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// The path is malformed.
    #[error("invalid path at byte {at}: {problem}")]
    Wrong {
        /// Byte offset, from 0.
        at: usize,
        /// Expected syntax.
        problem: &'static str,
    },
}

const EXPECTED_NAME: &str =
    "a name or * must follow, as in .name; a name with other characters is written ['like this']";
const EXPECTED_SELECTOR: &str =
    "a bracket holds an index, a slice, * or a quoted name, as in [0], [1:3], [*] or ['name']";
const NUMBER_TOO_LARGE: &str = "this number is too large";
const EXPECTED_STEP: &str = "a step must follow, as in .name or [0]";
const UNTERMINATED_NAME: &str = "unterminated quoted name";
const EXPECTED_ESCAPE: &str =
    "after a backslash one of \\ / ' \" b f n r t or u with four hex digits must follow";
const EXPECTED_BRACKET_END: &str = "a comma or ] must follow";
const FILTERS_UNSUPPORTED: &str = "filters are not supported; select more, or use grep";

/// Parses the segments of a path.
pub(super) fn segments(text: &str) -> Result<Vec<JsonPathSegment>, InvalidJsonPath> {
    if text.len() > MAX_BYTES {
        return Err(InvalidJsonPath::TooLong);
    }
    let mut parser = PathParser { text, at: 0 };
    parser.skip_spaces();
    // A lone `$`, or one before a segment, is the root; anywhere else it is part of a name.
    let has_root = parser
        .rest()
        .strip_prefix('$')
        .is_some_and(|rest| rest.trim_start().is_empty() || rest.trim_start().starts_with(['.', '[']));
    let mut segments = Vec::new();
    if has_root {
        parser.at += 1;
    } else if !parser.rest().starts_with(['.', '[']) {
        segments.push(JsonPathSegment {
            traversal: Traversal::Children,
            selectors: vec![parser.name_or_wildcard()?],
        });
    } else if parser.rest().trim_end() == "." {
        return Ok(segments);
    }
    loop {
        parser.skip_spaces();
        if parser.rest().is_empty() {
            return Ok(segments);
        }
        segments.push(parser.segment()?);
    }
}

struct PathParser<'text> {
    text: &'text str,
    at: usize,
}

impl<'text> PathParser<'text> {
    fn rest(&self) -> &'text str {
        &self.text[self.at..]
    }

    fn wrong<T>(&self, problem: &'static str) -> Result<T, InvalidJsonPath> {
        Err(InvalidJsonPath::Wrong { at: self.at, problem })
    }

    fn has(&mut self, token: &str) -> bool {
        let is_match = self.rest().starts_with(token);
        if is_match {
            self.at += token.len();
        }
        is_match
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn segment(&mut self) -> Result<JsonPathSegment, InvalidJsonPath> {
        let traversal = if self.has("..") { Traversal::Descendants } else { Traversal::Children };
        let selectors = if self.has("[") {
            self.bracket()?
        } else if traversal == Traversal::Descendants || self.has(".") {
            // `.[0]` is common and unambiguous.
            if self.has("[") { self.bracket()? } else { vec![self.name_or_wildcard()?] }
        } else {
            return self.wrong(EXPECTED_STEP);
        };
        Ok(JsonPathSegment { traversal, selectors })
    }

    fn name_or_wildcard(&mut self) -> Result<Selector, InvalidJsonPath> {
        if self.has("*") {
            return Ok(Selector::Wildcard);
        }
        let ends_name = |c: char| c.is_whitespace() || c.is_control() || ".[]*'\"(),?".contains(c);
        let name = &self.rest()[..self.rest().find(ends_name).unwrap_or(self.rest().len())];
        if name.is_empty() {
            return self.wrong(if self.rest().starts_with('?') {
                FILTERS_UNSUPPORTED
            } else {
                EXPECTED_NAME
            });
        }
        self.at += name.len();
        Ok(Selector::Name(name.to_owned()))
    }

    /// Parses the selectors of a bracket, including its end.
    fn bracket(&mut self) -> Result<Vec<Selector>, InvalidJsonPath> {
        let mut selectors = Vec::new();
        loop {
            self.skip_spaces();
            selectors.push(self.selector()?);
            self.skip_spaces();
            if self.has("]") {
                return Ok(selectors);
            }
            if !self.has(",") {
                return self.wrong(EXPECTED_BRACKET_END);
            }
        }
    }

    fn selector(&mut self) -> Result<Selector, InvalidJsonPath> {
        match self.rest().chars().next() {
            Some('*') => {
                self.at += 1;
                Ok(Selector::Wildcard)
            }
            Some(quote @ ('\'' | '"')) => {
                self.at += 1;
                self.quoted(quote).map(Selector::Name)
            }
            Some('?') => self.wrong(FILTERS_UNSUPPORTED),
            Some('-' | ':' | '0'..='9') => self.index_or_slice(),
            Some(_) | None => self.wrong(EXPECTED_SELECTOR),
        }
    }

    fn index_or_slice(&mut self) -> Result<Selector, InvalidJsonPath> {
        let start = self.number()?;
        self.skip_spaces();
        if !self.has(":") {
            return start.map_or_else(|| self.wrong(EXPECTED_SELECTOR), |index| Ok(Selector::Index(index)));
        }
        self.skip_spaces();
        let end = self.number()?;
        self.skip_spaces();
        let step = if self.has(":") {
            self.skip_spaces();
            self.number()?.unwrap_or(1)
        } else {
            1
        };
        Ok(Selector::Slice { start, end, step })
    }

    fn number(&mut self) -> Result<Option<i64>, InvalidJsonPath> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let n_digits = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if n_digits == 0 {
            return Ok(None);
        }
        let number = &rest[..rest.len() - digits.len() + n_digits];
        let Ok(value) = number.parse() else { return self.wrong(NUMBER_TOO_LARGE) };
        self.at += number.len();
        Ok(Some(value))
    }

    /// Parses a quoted name, including its closing quote.
    fn quoted(&mut self, quote: char) -> Result<String, InvalidJsonPath> {
        let mut name = String::new();
        loop {
            let Some(character) = self.rest().chars().next() else { return self.wrong(UNTERMINATED_NAME) };
            self.at += character.len_utf8();
            if character == quote {
                return Ok(name);
            }
            name.push(if character == '\\' { self.escape()? } else { character });
        }
    }

    fn escape(&mut self) -> Result<char, InvalidJsonPath> {
        let Some(character) = self.rest().chars().next() else { return self.wrong(UNTERMINATED_NAME) };
        let meant = match character {
            '\\' | '/' | '\'' | '"' => character,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode(),
            _ => return self.wrong(EXPECTED_ESCAPE),
        };
        self.at += 1;
        Ok(meant)
    }

    /// Parses `u00e9`, or a surrogate pair.
    fn unicode(&mut self) -> Result<char, InvalidJsonPath> {
        let first = self.code_unit()?;
        let mut units = vec![first];
        if (0xd800..0xdc00).contains(&first) && self.has("\\") {
            units.push(self.code_unit()?);
        }
        match char::decode_utf16(units).collect::<Result<Vec<_>, _>>().as_deref() {
            Ok([character]) => Ok(*character),
            Ok(_) | Err(_) => self.wrong(EXPECTED_ESCAPE),
        }
    }

    fn code_unit(&mut self) -> Result<u16, InvalidJsonPath> {
        let digits =
            self.rest().get(1..5).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.map(|digits| u16::from_str_radix(digits, 16)) {
            Some(Ok(unit)) if self.rest().starts_with('u') => {
                self.at += 5;
                Ok(unit)
            }
            Some(_) | None => self.wrong(EXPECTED_ESCAPE),
        }
    }
}
