//! Texts of others, cut to a length or held against a pattern.

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

/// Whether a text is like a pattern, in which `*` stands for any characters and `?` for one.
///
/// It takes no longer than the product of both lengths, whatever is in the pattern.
///
/// ```
/// use pegboard_core::text::is_like;
///
/// assert!(is_like("get_*", "get_issue") && is_like("*é??", "née!") && is_like("**", ""));
/// assert!(!is_like("get_*", "forget_it") && !is_like("?", "") && !is_like("a*b", "abc"));
/// ```
pub fn is_like(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // What follows the last `*`, and where that was last looked for: no earlier one need ever be tried again.
    let mut last_star: Option<(&str, &str)> = None;
    loop {
        if let Some(behind) = pattern.strip_prefix('*') {
            last_star = Some((behind, text));
            pattern = behind;
            continue;
        }
        let (mut wanted, mut found) = (pattern.chars(), text.chars());
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted_one), Some(found_one)) if wanted_one == '?' || wanted_one == found_one => {
                (pattern, text) = (wanted.as_str(), found.as_str());
            }
            _ => {
                let Some((behind, from)) = last_star else { return false };
                let mut from = from.chars();
                if from.next().is_none() {
                    return false;
                }
                last_star = Some((behind, from.as_str()));
                (pattern, text) = (behind, from.as_str());
            }
        }
    }
}
