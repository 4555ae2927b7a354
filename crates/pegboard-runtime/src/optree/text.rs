//! Truncation and escaping of recorded text.

use std::fmt::Write as _;
use std::sync::Arc;

/// Maximum number of recorded payload bytes.
const MAX_PAYLOAD: usize = 4_096;

/// Marker at the end of a truncated text.
const ELLIPSIS: &str = "…";

/// The beginning of a request or a response.
///
/// ```
/// use pegboard_runtime::optree::Payload;
///
/// assert!(!Payload::of("{}").is_truncated());
/// let long = Payload::of(&"x".repeat(10_000));
/// assert!(long.is_truncated() && long.text().len() == 4_096);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    text: Arc<str>,
    is_truncated: bool,
}

impl Payload {
    /// Takes the first 4,096 bytes of a text.
    pub fn of(text: &str) -> Self {
        let end = text.floor_char_boundary(MAX_PAYLOAD);
        Self { text: text[..end].into(), is_truncated: end < text.len() }
    }

    /// Returns the recorded text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns `true` if the text was truncated.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    pub(super) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

/// Truncates a text to a number of bytes; a text that fits is shared, not copied.
pub(super) fn truncate<T: Into<Arc<str>> + AsRef<str>>(text: T, limit: usize) -> Arc<str> {
    let whole = text.as_ref();
    if whole.len() <= limit {
        return text.into();
    }
    let end = whole.floor_char_boundary(limit.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", &whole[..end]).into()
}

/// Returns at most `n_most` characters of a text, with terminal controls and invisible characters escaped.
pub(super) fn printable(text: &str, n_most: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(n_most));
    let mut characters = text.chars();
    for character in characters.by_ref().take(n_most) {
        if is_printable(character) {
            clean.push(character);
        } else {
            write!(clean, "{}", character.escape_default()).expect("writing to a String cannot fail");
        }
    }
    if characters.next().is_some() {
        clean.push_str(ELLIPSIS);
    }
    clean
}

/// Returns `true` unless the character is a control, has no width, or changes the text direction.
fn is_printable(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !character.is_control() && !is_invisible
}
