//! What an address must look like to be listed.

/// A part of an address, or all of it with `*` and `?` for what may be anything.
pub(super) struct Pattern(Vec<char>);

impl Pattern {
    pub(super) fn new(written: &str) -> Self {
        let written = written.trim_matches('/').to_lowercase();
        let is_whole = written.contains(['*', '?']);
        let written = if is_whole { written } else { format!("*{written}*") };
        Self(written.chars().collect())
    }

    /// Whether an address, or a part of it from some `/` on, is as it should be.
    pub(super) fn meets(&self, address: &str) -> bool {
        let address: Vec<char> = address.to_lowercase().chars().collect();
        let starts = address.iter().enumerate().filter(|(_, each)| **each == '/').map(|(place, _)| place + 1);
        std::iter::once(0).chain(starts).any(|start| is_like(&self.0, &address[start..]))
    }
}

/// Whether a text is like a pattern. Goes back to the last `*` only, so that no pattern takes long.
fn is_like(pattern: &[char], text: &[char]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(each) if *each == '?' || *each == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((place, from)) = star else { return false };
                star = Some((place, from + 1));
                at = place + 1;
                seen = from + 1;
            }
        }
    }
    pattern[at..].iter().all(|each| *each == '*')
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
