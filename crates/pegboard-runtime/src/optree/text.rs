//! Text that is kept, cut to what is worth keeping.

use std::fmt::Write as _;
use std::sync::Arc;

/// How many bytes of a payload are kept.
const MAX_PAYLOAD: usize = 4_096;

/// What stands for the rest of a text that was cut.
const CUT: &str = "…";

/// The beginning of a request or a response.
///
/// ```
/// use pegboard_runtime::optree::Payload;
///
/// assert!(!Payload::of("{}").is_cut());
/// let long = Payload::of(&"x".repeat(10_000));
/// assert!(long.is_cut() && long.text().len() == 4_096);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    text: Arc<str>,
    is_cut: bool,
}

impl Payload {
    /// The first 4,096 bytes of a text.
    pub fn of(text: &str) -> Self {
        let end = text.floor_char_boundary(MAX_PAYLOAD);
        Self { text: text[..end].into(), is_cut: end < text.len() }
    }

    /// What was kept.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether there was more.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

/// A text of at most so many bytes; one that fits is shared and not copied.
pub(super) fn bounded<T: Into<Arc<str>> + AsRef<str>>(text: T, limit: usize) -> Arc<str> {
    let whole = text.as_ref();
    if whole.len() <= limit {
        return text.into();
    }
    let end = whole.floor_char_boundary(limit.saturating_sub(CUT.len()));
    format!("{}{CUT}", &whole[..end]).into()
}

/// At most so many characters of a text, none of which can upset a terminal or hide another.
pub(super) fn printable(text: &str, n_most: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(n_most));
    let mut characters = text.chars();
    for character in characters.by_ref().take(n_most) {
        if is_harmless(character) {
            clean.push(character);
        } else {
            write!(clean, "{}", character.escape_default()).expect("a String takes all that is written");
        }
    }
    if characters.next().is_some() {
        clean.push_str(CUT);
    }
    clean
}

/// Whether a character is what it looks like: no control, no mark that has no width or turns the direction.
fn is_harmless(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !character.is_control() && !is_invisible
}
