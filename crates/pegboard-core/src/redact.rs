//! Redaction: values under secret-looking names, and known secrets.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use aho_corasick::AhoCorasick;
use serde_json::{Map, Value};

use crate::secret::MIN_SECRET_CHARACTERS;

/// Replacement for a redacted value.
pub const REDACTED: &str = "[redacted]";

/// Replacement for a value that nests too deep.
const TOO_DEEP: &str = "[too deep]";
/// Maximum depth to search.
const MAX_DEPTH: usize = 64;
/// Length from which a value is redacted whatever it is. Shorter ones may be words, unless they are known to be secret.
const MIN_CERTAIN_CHARACTERS: usize = 8;

/// Minimum length of a secret word that counts at the end of a longer one; shorter ones would match `oauth`.
const MIN_ENDING: usize = 5;

/// Words that mark a name as secret, alone or joined with their neighbour.
const SECRET_WORDS: [&str; 29] = [
    "accesskey",
    "apikey",
    "apitoken",
    "auth",
    "authkey",
    "authorization",
    "authtoken",
    "accesstoken",
    "bearer",
    "clientsecret",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "encryptionkey",
    "jwt",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "privatekey",
    "pwd",
    "refreshtoken",
    "secret",
    "secretkey",
    "secrets",
    "sessiontoken",
    "signingkey",
    "token",
];

/// Returns `true` if the value under this name is probably a secret.
///
/// The name is split into words, in any case convention. A word counts if it is or ends with a secret word, but
/// not if it only starts with one.
///
/// ```
/// use pegboard_core::redact::is_secret_name;
///
/// assert!(is_secret_name("X-Api-Key") && is_secret_name("dbPassword") && is_secret_name("githubtoken"));
/// assert!(!is_secret_name("tokenizer") && !is_secret_name("max_tokens") && !is_secret_name("key"));
/// ```
pub fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let is_secret_word = |word: &String| {
        let ends_with = |secret: &&str| secret.len() >= MIN_ENDING && word.ends_with(*secret);
        SECRET_WORDS.contains(&word.as_str()) || SECRET_WORDS.iter().any(ends_with)
    };
    let is_secret_pair = |pair: &[String]| SECRET_WORDS.contains(&pair.concat().trim_end_matches('s'));
    words.iter().any(is_secret_word) || words.windows(2).any(is_secret_pair)
}

/// Splits a name into lower-case words: `dbAPIKey_2` is `db`, `api`, `key`.
fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    for (at, &character) in characters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| characters[before]);
        let is_after_lower = before.is_some_and(char::is_lowercase);
        // The last capital of several begins the next word: `APIKey`.
        let is_before_lower = characters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = character.is_uppercase() && (is_after_lower || is_before_lower);
        if begins || !character.is_alphabetic() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphabetic() {
            word.extend(character.to_lowercase());
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Redacts all values under secret-looking names.
///
/// Booleans and `null` are kept: they tell if there is a secret, not which.
///
/// ```
/// use pegboard_core::redact::redacted;
/// use serde_json::json;
///
/// let sent = json!({"user": "ann", "login": {"password": "hunter2", "hasToken": true}});
/// assert_eq!(
///     redacted(&sent),
///     json!({"user": "ann", "login": {"password": "[redacted]", "hasToken": true}})
/// );
/// ```
pub fn redacted(value: &Value) -> Value {
    redacted_to(value, MAX_DEPTH)
}

/// Redacts the members of an object.
pub fn redacted_members<'a>(members: impl Iterator<Item = (&'a String, &'a Value)>) -> Map<String, Value> {
    members_to(members, MAX_DEPTH)
}

fn redacted_to(value: &Value, depth: usize) -> Value {
    let Some(deeper) = depth.checked_sub(1) else { return TOO_DEEP.into() };
    match value {
        Value::Object(members) => Value::Object(members_to(members.iter(), deeper)),
        Value::Array(items) => Value::Array(items.iter().map(|item| redacted_to(item, deeper)).collect()),
        Value::String(text) => redacted_text(text, deeper).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Redacts a text; if it is JSON itself, as many servers return, its content is redacted.
fn redacted_text(text: &str, depth: usize) -> String {
    let looks_like_json = text.trim_start().starts_with(['{', '[']);
    match serde_json::from_str::<Value>(text).ok().filter(|_| looks_like_json) {
        Some(inner) => redacted_to(&inner, depth).to_string(),
        None => text.to_owned(),
    }
}

fn members_to<'a>(
    members: impl Iterator<Item = (&'a String, &'a Value)>,
    depth: usize,
) -> Map<String, Value> {
    let member = |(name, value): (&String, &Value)| {
        let reveals_nothing = matches!(value, Value::Null | Value::Bool(_));
        let is_secret = !reveals_nothing && is_secret_name(name);
        (name.clone(), if is_secret { REDACTED.into() } else { redacted_to(value, depth) })
    };
    members.map(member).collect()
}

/// Returns `true` if the value of this variable or header may be a secret: its name looks secret, or the
/// value looks random. Words, numbers and paths do not.
///
/// ```
/// use pegboard_core::redact::may_be_secret;
///
/// assert!(may_be_secret("API_KEY", "anything") && may_be_secret("PAT", "ghp_16C7e42F292c69"));
/// assert!(!may_be_secret("NODE_ENV", "production") && !may_be_secret("DATA_DIR", "/srv/data1"));
/// ```
pub fn may_be_secret(name: &str, value: &str) -> bool {
    let has = |is: fn(char) -> bool| value.contains(is);
    let is_plain = has(char::is_whitespace) || value.contains(['/', '\\']);
    let looks_random = has(|c| c.is_ascii_digit()) && has(char::is_alphabetic) && !is_plain;
    let has_user = value.contains("://") && value.contains('@');
    is_secret_name(name) || looks_random || has_user
}

/// Returns `true` if a secret can be redacted: it is no word that occurs in many messages, and not too short.
pub fn is_redactable(secret: &str) -> bool {
    has_characters(secret, MIN_SECRET_CHARACTERS) && !matches!(secret, "true" | "false" | "null")
}

/// Returns `true` if a value under this name must be redacted. Short values are, if they [may be
/// secret](may_be_secret): `info` and `8080` are not.
///
/// ```
/// use pegboard_core::redact::is_redactable_under;
///
/// assert!(is_redactable_under("DB_PASSWORD", "rosa") && is_redactable_under("PAT", "x7f3"));
/// assert!(!is_redactable_under("LOG_LEVEL", "info") && !is_redactable_under("DB_PASSWORD", "abc"));
/// ```
pub fn is_redactable_under(name: &str, value: &str) -> bool {
    is_redactable(value) && (has_characters(value, MIN_CERTAIN_CHARACTERS) || may_be_secret(name, value))
}

fn has_characters(text: &str, n_characters: usize) -> bool {
    text.chars().nth(n_characters - 1).is_some()
}

/// Redacts known secrets from text, in time linear in the text.
///
/// ```
/// use pegboard_core::redact::Redactor;
///
/// let redactor = Redactor::new(["correct-horse", "pin1", "is"]);
/// assert_eq!(redactor.text("correct-horse and pin1: this is it"), "[redacted] and [redacted]: this is it");
/// ```
#[derive(Clone)]
pub struct Redactor(AhoCorasick);

impl Redactor {
    /// Creates a redactor for these values, and for the lines of those that have several: logs are redacted line by
    /// line. Values of fewer than [`MIN_SECRET_CHARACTERS`] are ignored, and short lines.
    #[expect(clippy::missing_panics_doc, reason = "panics only for gigabytes of secrets")]
    pub fn new(known: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let known: Vec<String> = known
            .into_iter()
            .filter(|value| has_characters(value.as_ref(), MIN_SECRET_CHARACTERS))
            .flat_map(|value| {
                let value = value.as_ref();
                let lines =
                    value.lines().map(str::trim).filter(|line| has_characters(line, MIN_CERTAIN_CHARACTERS));
                lines.chain([value]).map(str::to_owned).collect::<BTreeSet<_>>()
            })
            .collect();
        Self(AhoCorasick::new(known).expect("secrets are far smaller than two gigabytes"))
    }

    /// Creates a redactor for these values in every form that a message or a log line may contain: verbatim, with
    /// escaped control characters, debug-quoted, and each of them inside JSON.
    pub fn with_escapes(known: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let known: BTreeSet<String> =
            known.into_iter().flat_map(|value| escaped_forms(value.as_ref())).collect();
        Self::new(known)
    }

    /// Redacts known secrets from all strings and names of a value.
    pub fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, member)| (self.text(name).into_owned(), self.value(member)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Redacts known secrets from a text.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.marked_text(text, REDACTED)
    }

    /// Replaces known secrets in a text by a mark.
    pub fn marked_text<'t>(&self, text: &'t str, mark: &str) -> Cow<'t, str> {
        if !self.0.is_match(text) {
            return Cow::Borrowed(text);
        }
        let mut found: Vec<(usize, usize)> =
            self.0.find_overlapping_iter(text).map(|found| (found.start(), found.end())).collect();
        found.sort_unstable();
        let mut clean = String::with_capacity(text.len());
        let mut done = 0;
        for (start, end) in found {
            // Overlapping secrets are replaced together, so that no part of one remains.
            if start >= done {
                clean.push_str(&text[done..start]);
                clean.push_str(mark);
            }
            done = done.max(end);
        }
        clean.push_str(&text[done..]);
        Cow::Owned(clean)
    }
}

/// All forms in which a line may contain a text.
fn escaped_forms(text: &str) -> Vec<String> {
    let escaped = text.chars().map(|character| match character {
        _ if character.is_control() => character.escape_default().to_string(),
        _ => character.to_string(),
    });
    let plain = [text.to_owned(), escaped.collect(), text.escape_debug().to_string()];
    let in_json = plain.clone().map(|text| {
        let quoted = Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    });
    plain.into_iter().chain(in_json).collect()
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.patterns_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_secret_is_redacted_by_itself() {
        let key = "-----BEGIN KEY-----\nfirst-line-of-it\r\n  second-line-of-it\nend\n";
        let redactor = Redactor::with_escapes([key]);
        for text in [key.to_owned(), key.replace('\n', "\\n"), key.lines().collect::<Vec<_>>().join(" | ")] {
            let clean = redactor.text(&text).into_owned();
            assert!(!clean.contains("-line-of-it") && clean.contains(REDACTED), "{clean}");
        }
        assert_eq!(redactor.text("the end"), "the end", "short lines occur in innocent text");
    }
}
