//! Cutting a text to size: its two ends, or one piece after the other.

/// A text shorter than this is cut at its end; it is too short to keep both ends of.
const MIN_BYTES_FOR_TWO_ENDS: usize = 512;
/// What is set aside for the marker. It has 30 bytes besides its number, and no number has more than 20 digits.
const MARKER_BYTES: usize = 50;

/// The beginning and the end of a text, with a marker in between that says how much is missing.
///
/// The result is never longer than `target_bytes`. A text below 512 bytes, or a target that has no room for a marker,
/// leaves the beginning alone.
///
/// ```
/// use pegboard_runtime::reading::truncated;
///
/// let short = truncated(&"x".repeat(1_000), 600);
/// assert_eq!(short.len(), 583);
/// assert!(short.contains("x[···TRUNCATED 450 bytes···]x"));
/// ```
pub fn truncated(text: &str, target_bytes: usize) -> String {
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

/// The text in pieces of at most `size` bytes, each of which repeats the end of the one before it.
///
/// The overlap is at most 50 percent. A character that is larger than `size` is a piece of its own.
///
/// ```
/// use pegboard_runtime::reading::chunks;
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
        // A next piece that would not reach further than this one starts where this one ends.
        let reaches_further = next > start && text.floor_char_boundary(next.saturating_add(size)) > end;
        start = if reaches_further { next } else { end };
        Some(chunk)
    })
}

/// A text that somebody else chose, in quotation marks and short enough to be repeated.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut short: String = text.chars().take(MAX_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
