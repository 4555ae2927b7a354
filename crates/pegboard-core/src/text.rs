//! Texts of others, cut to a length.

use std::borrow::Cow;

/// The beginning of a text, so many bytes at most.
///
/// ```
/// assert_eq!(pegboard_core::text::clip("né", 2), "n");
/// ```
pub fn clip(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// The text, or its beginning with a mark that there was more.
///
/// ```
/// assert_eq!(pegboard_core::text::clipped("a long text", 6), "a long…");
/// ```
pub fn clipped(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes { text.into() } else { format!("{}…", clip(text, max_bytes)).into() }
}

/// The text, or its end with a mark that there was more.
///
/// ```
/// assert_eq!(pegboard_core::text::ending("a long text", 4), "…text");
/// ```
pub fn ending(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return text.into();
    }
    let start = text.ceil_char_boundary(text.len() - max_bytes);
    format!("…{}", &text[start..]).into()
}
