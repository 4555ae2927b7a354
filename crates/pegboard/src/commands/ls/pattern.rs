//! Pattern for addresses.

use pegboard::text::matches_glob;

/// A substring of an address, or a glob with `*` and `?`.
pub(super) struct AddressPattern(String);

impl AddressPattern {
    pub(super) fn new(written: &str) -> Self {
        let written = written.trim_matches('/').to_lowercase();
        let is_whole = written.contains(['*', '?']);
        Self(if is_whole { written } else { format!("*{written}*") })
    }

    /// Returns `true` if the address, or a suffix of it after some `/`, matches.
    pub(super) fn matches(&self, address: &str) -> bool {
        let address = address.to_lowercase();
        let starts = address.match_indices('/').map(|(place, _)| place + 1);
        std::iter::once(0).chain(starts).any(|start| matches_glob(&self.0, &address[start..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_match_by_substring_and_glob() {
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
            assert_eq!(AddressPattern::new(pattern).matches(address), expected, "{pattern} {address}");
        }
    }
}
