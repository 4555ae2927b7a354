//! Truncation and chunking of text.

/// Minimum length of a text that is truncated in the middle; a shorter one loses its end.
const MIN_BYTES_FOR_TWO_ENDS: usize = 512;
/// Size reserved for the marker: 30 bytes plus a number of at most 20 digits.
const MARKER_BYTES: usize = 50;

/// Truncates a text in the middle, with a marker that gives the number of omitted bytes.
///
/// The result is never longer than `target_bytes`. A text below 512 bytes, or a target without room for a
/// marker, keeps the beginning only.
///
/// ```
/// use pegboard_runtime::output_query::truncate_middle;
///
/// let short = truncate_middle(&"x".repeat(1_000), 600);
/// assert_eq!(short.len(), 583);
/// assert!(short.contains("x[···TRUNCATED 450 bytes···]x"));
/// ```
pub fn truncate_middle(text: &str, target_bytes: usize) -> String {
    if text.len() <= target_bytes {
        return text.to_owned();
    }
    let half = target_bytes.saturating_sub(MARKER_BYTES) / 2;
    if text.len() < MIN_BYTES_FOR_TWO_ENDS || half == 0 {
        return text[..text.floor_char_boundary(target_bytes)].to_owned();
    }
    let first = &text[..text.floor_char_boundary(half)];
    let last = &text[text.ceil_char_boundary(text.len() - half)..];
    let n_missing = text.len() - first.len() - last.len();
    format!("{first}[···TRUNCATED {n_missing} bytes···]{last}")
}

/// Splits a text into chunks of at most `size` bytes, each overlapping the end of the previous one.
///
/// The overlap is at most 50 percent. A character larger than `size` is a chunk of its own.
///
/// ```
/// use pegboard_runtime::output_query::chunks;
///
/// assert_eq!(chunks("abcdefghij", 4, 25).collect::<Vec<_>>(), ["abcd", "defg", "ghij"]);
/// ```
pub fn chunks(text: &str, size: usize, overlap_percent: u8) -> impl Iterator<Item = &str> {
    let overlap = size / 100 * usize::from(overlap_percent.min(50))
        + size % 100 * usize::from(overlap_percent.min(50)) / 100;
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= text.len() {
            return None;
        }
        let end =
            text.floor_char_boundary(start.saturating_add(size)).max(text.ceil_char_boundary(start + 1));
        let chunk = &text[start..end];
        let next = text.ceil_char_boundary(end.saturating_sub(overlap));
        // A chunk that would not extend beyond this one starts at its end instead.
        let reaches_further = next > start && text.floor_char_boundary(next.saturating_add(size)) > end;
        start = if reaches_further { next } else { end };
        Some(chunk)
    })
}

/// Quotes a foreign text, shortened.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut short: String = text.chars().take(MAX_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
