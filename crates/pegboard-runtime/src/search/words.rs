//! Word splitting and stemming.

/// Maximum length of a word; the rest is dropped.
const MAX_WORD_BYTES: usize = 64;

/// Calls `take` with every word of a text: `createIssues_v2` yields `create`, `issue`, `v` and `2`.
pub(super) fn for_each_word(text: &str, mut take: impl FnMut(String)) {
    for_each_part(text, |part| take(stem(part)));
}

/// Joins the parts of a name into one word; `None` if there are fewer than two.
pub(super) fn joined_word(name: &str) -> Option<String> {
    let mut whole = String::new();
    let mut n_parts = 0;
    for_each_part(name, |part| {
        n_parts += 1;
        if whole.len() + part.len() <= MAX_WORD_BYTES {
            whole.push_str(&part);
        }
    });
    (n_parts > 1).then(|| stem(whole))
}

fn for_each_part(text: &str, mut take: impl FnMut(String)) {
    let mut part = String::new();
    let mut last: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let is_in_word = character.is_alphanumeric();
        let is_new = last.is_some_and(|last| is_boundary(last, character, characters.peek().copied()));
        if (!is_in_word || is_new) && !part.is_empty() {
            take(std::mem::take(&mut part));
        }
        if is_in_word && part.len() < MAX_WORD_BYTES {
            part.extend(character.to_lowercase());
        }
        last = is_in_word.then_some(character);
    }
    if !part.is_empty() {
        take(part);
    }
}

/// Returns `true` if a part ends before `character`: `aB`, `a1`, `1a`, and before the last capital of `ABc`.
fn is_boundary(last: char, character: char, next: Option<char>) -> bool {
    last.is_numeric() != character.is_numeric()
        || (last.is_lowercase() && character.is_uppercase())
        || (last.is_uppercase() && character.is_uppercase() && next.is_some_and(char::is_lowercase))
}

/// Reduces singular and plural to one stem: `issue`/`issues`, `query`/`queries`, `box`/`boxes`,
/// `cache`/`caches`.
fn stem(mut word: String) -> String {
    const SHORTEST: usize = 3;
    if word.ends_with("xes") && word.len() > SHORTEST + 1 {
        word.truncate(word.len() - 2);
        return word;
    }
    if word.ends_with('s')
        && !["ss", "us", "is"].iter().any(|end| word.ends_with(end))
        && word.len() > SHORTEST
    {
        word.pop();
    }
    if word.ends_with('e') && word.len() > SHORTEST + 1 {
        word.pop();
    }
    if word.ends_with('y') && word.len() > SHORTEST {
        word.pop();
        word.push('i');
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_at_word_boundaries_within_names() {
        let check = |text: &str, expected: &[&str]| {
            let mut words = Vec::new();
            for_each_word(text, |word| words.push(word));
            assert_eq!(words, expected, "{text:?}");
        };
        check("createIssues_v2", &["creat", "issu", "v", "2"]);
        check("HTTPServer-list.all", &["http", "server", "list", "all"]);
        check("Read a file's text", &["read", "a", "file", "s", "text"]);
        check("Größe ÄndernÜber", &["größ", "ändern", "über"]);
        check("日本語", &["日本語"]);
        check(" __ ", &[]);
    }

    #[test]
    fn singular_and_plural_have_the_same_stem() {
        for (one, many) in [
            ("issue", "issues"),
            ("query", "queries"),
            ("box", "boxes"),
            ("cache", "caches"),
            ("branch", "branches"),
            ("address", "addresses"),
            ("file", "files"),
            ("movie", "movies"),
            ("key", "keys"),
            ("use", "uses"),
        ] {
            assert_eq!(stem(one.to_owned()), stem(many.to_owned()), "{one} {many}");
        }
        for (one, other) in [("status", "statu"), ("note", "not"), ("class", "clas"), ("is", "i")] {
            assert_ne!(stem(one.to_owned()), stem(other.to_owned()), "{one} {other}");
        }
    }

    #[test]
    fn a_name_joins_to_the_same_word_in_every_notation() {
        for name in ["createIssue", "create_issue", "create-issue", "Create Issue"] {
            assert_eq!(joined_word(name).as_deref(), Some("createissu"), "{name}");
        }
        assert_eq!(joined_word("create"), None);
    }
}
