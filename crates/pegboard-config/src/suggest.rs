//! Suggestions for misspelled names.

use std::cmp::Reverse;

/// Returns the name most similar to `written`, if one is similar enough.
///
/// ```
/// assert_eq!(pegboard_config::suggest("reserch", ["writer", "research"]), Some("research"));
/// assert_eq!(pegboard_config::suggest("codx", ["code", "codex"]), Some("codex"));
/// assert_eq!(pegboard_config::suggest("painter", ["writer", "research"]), None);
/// ```
pub fn suggest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // Longer names are not typos, and the comparison takes quadratic time.
    if written.len() > 64 {
        return None;
    }
    let written = written.to_lowercase();
    let n_written = written.chars().count();
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= n_written.max(name.chars().count()) / 3)
        // Ties are broken by the longest common prefix and suffix.
        .min_by_key(|(distance, name)| (*distance, Reverse(n_shared(&written, name))))
        .map(|(_, name)| name)
}

/// Returns the number of characters in the common prefix and suffix.
fn n_shared(written: &str, name: &str) -> usize {
    let name = name.to_lowercase();
    let n_first = written.chars().zip(name.chars()).take_while(|(one, other)| one == other).count();
    let n_last =
        written.chars().rev().zip(name.chars().rev()).take_while(|(one, other)| one == other).count();
    n_first + n_last
}
