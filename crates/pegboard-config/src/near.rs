//! What somebody probably meant to write.

/// The name that looks most like `written`, if one does.
///
/// ```
/// assert_eq!(pegboard_config::near("reserch", ["writer", "research"]), Some("research"));
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
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
