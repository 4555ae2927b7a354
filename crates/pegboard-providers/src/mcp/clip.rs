//! Texts of servers, cut to a length.

use std::borrow::Cow;

/// How much of what a server says is told when it cannot be used.
pub(super) const MAX_WHY_BYTES: usize = 2_000;

/// The text, or its beginning and an ellipsis if it is longer than so many bytes.
pub(super) fn clipped(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(max_bytes)]).into()
}
