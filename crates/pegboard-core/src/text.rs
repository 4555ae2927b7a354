//! Truncation and glob matching of text.

use std::borrow::Cow;

/// Truncates a text to `max_bytes` at a character boundary.
///
/// ```
/// assert_eq!(pegboard_core::text::clip("né", 2), "n");
/// ```
pub fn clip(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Truncates a text at its end, with an ellipsis.
///
/// ```
/// assert_eq!(pegboard_core::text::clipped("a long text", 6), "a long…");
/// ```
pub fn clipped(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes { text.into() } else { format!("{}…", clip(text, max_bytes)).into() }
}

/// Truncates a text at its start, with an ellipsis.
///
/// ```
/// assert_eq!(pegboard_core::text::clipped_start("a long text", 4), "…text");
/// ```
pub fn clipped_start(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return text.into();
    }
    let start = text.ceil_char_boundary(text.len() - max_bytes);
    format!("…{}", &text[start..]).into()
}

/// Returns `true` if a text matches a glob pattern, in which `*` matches any characters and `?` one.
///
/// Takes at most time proportional to the product of both lengths.
///
/// ```
/// use pegboard_core::text::matches_glob;
///
/// assert!(matches_glob("get_*", "get_issue") && matches_glob("*é??", "née!") && matches_glob("**", ""));
/// assert!(!matches_glob("get_*", "forget_it") && !matches_glob("?", "") && !matches_glob("a*b", "abc"));
/// ```
pub fn matches_glob(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Pattern behind the last `*`, and where it was last tried: no earlier `*` need be retried.
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
