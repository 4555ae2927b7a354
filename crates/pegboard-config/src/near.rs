//! What somebody probably meant to write.

use std::cmp::Reverse;

/// The name that looks most like `written`, if one does.
///
/// ```
/// assert_eq!(pegboard_config::near("reserch", ["writer", "research"]), Some("research"));
/// assert_eq!(pegboard_config::near("codx", ["code", "codex"]), Some("codex"));
/// assert_eq!(pegboard_config::near("painter", ["writer", "research"]), None);
/// ```
pub fn near<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // Nobody misspells at such length, and comparing takes the product of both.
    if written.len() > 64 {
        return None;
    }
    let written = written.to_lowercase();
    let n_written = written.chars().count();
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= n_written.max(name.chars().count()) / 3)
        // Of two that are as near, people mean the one that begins and ends like what they wrote.
        .min_by_key(|(distance, name)| (*distance, Reverse(n_shared(&written, name))))
        .map(|(_, name)| name)
}

/// How many characters two names have in common, at their beginnings and at their ends.
fn n_shared(written: &str, name: &str) -> usize {
    let name = name.to_lowercase();
    let n_first = written.chars().zip(name.chars()).take_while(|(one, other)| one == other).count();
    let n_last =
        written.chars().rev().zip(name.chars().rev()).take_while(|(one, other)| one == other).count();
    n_first + n_last
}
