//! Suggestions for misspelt names.

/// Returns the candidate within edit distance 2 of `word`, or else one that contains it.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, closest) =
        known.iter().map(|candidate| (strsim::levenshtein(word, candidate), *candidate)).min()?;
    if distance <= 2 && distance < word.chars().count() {
        return Some(closest);
    }
    known.iter().copied().find(|candidate| word.len() >= 3 && candidate.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, &["name", "tags", "description", "read_only", "output_schema"]), expected);
    }

    #[test]
    fn a_misspelt_word_is_recognised() {
        check("tag", Some("tags"));
        check("nmae", Some("name"));
        check("readOnly", Some("read_only"));
    }

    #[test]
    fn a_part_of_a_word_is_recognised() {
        check("desc", Some("description"));
        check("schema", Some("output_schema"));
    }

    #[test]
    fn an_unrelated_word_gets_no_suggestion() {
        check("retries", None);
        check("x", None);
    }
}
