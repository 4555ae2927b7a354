//! What an address must look like to be listed.

use pegboard::text::is_like;

/// A part of an address, or all of it with `*` and `?` for what may be anything.
pub(super) struct Pattern(String);

impl Pattern {
    pub(super) fn new(written: &str) -> Self {
        let written = written.trim_matches('/').to_lowercase();
        let is_whole = written.contains(['*', '?']);
        Self(if is_whole { written } else { format!("*{written}*") })
    }

    /// Whether an address, or a part of it from some `/` on, is as it should be.
    pub(super) fn meets(&self, address: &str) -> bool {
        let address = address.to_lowercase();
        let starts = address.match_indices('/').map(|(place, _)| place + 1);
        std::iter::once(0).chain(starts).any(|start| is_like(&self.0, &address[start..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_met_by_parts_and_by_stars() {
        for (pattern, address, expected) in [
            ("note", "office/notes/add", true),
            ("NOTES/a", "office/notes/add", true),
            ("office/", "office/notes/add", true),
            ("shop", "office/notes/add", false),
            ("*", "office", true),
            ("add*", "office/notes/add", true),
            ("*d", "office/notes/add", true),
            ("office/*/add", "office/notes/add", true),
            ("n?tes/*", "office/notes/add", true),
            ("a*a*a*a*b", "office/notes/aaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("not*", "office/clock/now", false),
        ] {
            assert_eq!(Pattern::new(pattern).meets(address), expected, "{pattern} {address}");
        }
    }
}
