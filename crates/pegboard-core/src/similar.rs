//! Similar names, as suggestions for misspelled ones.

/// Minimum similarity of a suggestion among several.
const MIN_SIMILARITY: f64 = 0.5;
/// Minimum similarity of a single suggestion, which must not mislead.
const MIN_SINGLE_SIMILARITY: f64 = 2.0 / 3.0;
/// Maximum length of a misspelled name: longer ones are not typos, and the comparison takes quadratic time.
const MAX_TYPO_BYTES: usize = 64;

/// Returns the most similar names, best first; dissimilar ones are excluded.
///
/// ```
/// use pegboard_core::similar::nearest;
///
/// assert_eq!(nearest("read_fil", ["write_file", "read_file", "list"], 3), ["read_file", "write_file"]);
/// ```
pub fn nearest<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>, limit: usize) -> Vec<&'n str> {
    let lower = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| Some((similarity(&lower, candidate)?, candidate)))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(limit).map(|(_, candidate)| candidate).collect()
}

/// Returns the question whether the most similar name is meant, if one is similar enough.
///
/// ```
/// use pegboard_core::similar::did_you_mean;
///
/// assert_eq!(did_you_mean("reserch", ["writer", "research"]).unwrap(), "did you mean research?");
/// ```
pub fn did_you_mean<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    suggest(written, names).map(|meant| format!("did you mean {meant}?"))
}

/// Returns the name most similar to `written`, if one is similar enough to be meant.
///
/// ```
/// use pegboard_core::similar::suggest;
///
/// assert_eq!(suggest("reserch", ["writer", "research"]), Some("research"));
/// assert_eq!(suggest("codx", ["code", "codex"]), Some("codex"));
/// assert_eq!(suggest("painter", ["writer", "research"]), None);
/// ```
pub fn suggest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if written.len() > MAX_TYPO_BYTES {
        return None;
    }
    let best = nearest(written, names, 1).pop()?;
    similarity(&written.to_lowercase(), best).filter(|score| *score >= MIN_SINGLE_SIMILARITY).map(|_| best)
}

/// Returns the similarity of a lower-case name and another, from 0 to 1; `None` if below the threshold.
pub fn similarity(lower: &str, candidate: &str) -> Option<f64> {
    let similarity = strsim::normalized_damerau_levenshtein(lower, &candidate.to_lowercase());
    (similarity >= MIN_SIMILARITY).then_some(similarity)
}
