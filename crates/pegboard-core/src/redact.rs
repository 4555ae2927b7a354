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
        let mut all = BTreeSet::new();
        for value in known {
            all.extend(parts(value.as_ref()).map(str::to_owned));
        }
        Self(AhoCorasick::new(all).expect("secrets are far smaller than two gigabytes"))
    }

    /// Creates a redactor for these values and their lines in every form that a message or a log line may contain:
    /// verbatim, with escaped control characters, debug-quoted, each of them inside JSON, percent-encoded, and in
    /// base64.
    ///
    /// ```
    /// use pegboard_core::redact::Redactor;
    ///
    /// let redactor = Redactor::with_escapes(["p@ss word"]);
    /// assert_eq!(redactor.text("?key=p%40ss%20word"), "?key=[redacted]");
    /// // `ann:p@ss word` in base64.
    /// assert_eq!(redactor.text("Basic YW5uOnBAc3Mgd29yZA=="), "Basic YW5uOn[redacted]==");
    /// ```
    pub fn with_escapes(known: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut forms = BTreeSet::new();
        for value in known {
            for part in parts(value.as_ref()) {
                forms.extend(escaped_forms(part));
                forms.extend(percent_encoded_forms(part));
                if has_characters(part, MIN_CERTAIN_CHARACTERS) {
                    forms.extend(base64_forms(part.as_bytes()));
                }
            }
        }
        Self::new(forms)
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

/// Returns a secret and its lines, without those that are too short.
fn parts(secret: &str) -> impl Iterator<Item = &str> {
    let lines = secret.lines().map(str::trim).filter(|line| has_characters(line, MIN_CERTAIN_CHARACTERS));
    lines.chain([secret]).filter(|_| has_characters(secret, MIN_SECRET_CHARACTERS))
}

/// Returns the forms of a text in messages and in JSON.
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
    let in_ascii = in_json.clone().map(|text| in_ascii_json(&text));
    let in_upper_ascii = in_ascii.clone().map(|text| with_upper_hex(&text, "\\u", 4));
    plain.into_iter().chain(in_json).chain(in_ascii).chain(in_upper_ascii).collect()
}

/// Escapes what is not ASCII in the content of a JSON string.
fn in_ascii_json(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            let units = character.encode_utf16(&mut [0; 2]).to_vec();
            ascii.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    ascii
}

/// Writes the digits of hexadecimal escapes as capitals.
fn with_upper_hex(text: &str, mark: &str, n_digits: usize) -> String {
    let mut parts = text.split(mark);
    let mut upper = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(n_digits).unwrap_or((part, ""));
        upper.extend([mark, &digits.to_ascii_uppercase(), rest]);
    }
    upper
}

/// Returns the percent-encoded forms of a text: as a component of a URL, as JavaScript writes one, as a path, and in a
/// form.
fn percent_encoded_forms(text: &str) -> impl Iterator<Item = String> {
    let forms = ["-._~", "-._~!*'()", "-._~/", "-._*"].map(|kept| {
        let mut encoded = String::with_capacity(text.len());
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
                encoded.push(char::from(byte));
            } else {
                encoded.extend([format!("%{byte:02x}")]);
            }
        }
        encoded
    });
    forms.into_iter().flat_map(|form| {
        let upper = with_upper_hex(&form, "%", 2);
        let in_form = [form.replace("%20", "+"), upper.replace("%20", "+")];
        in_form.into_iter().chain([form, upper])
    })
}

/// Returns the base64 forms of bytes in a longer text: with zero, one or two bytes before them in the first group, and
/// other bytes or none behind them, in both alphabets. A digit that other bytes decide, too, is not part of a form.
fn base64_forms(bytes: &[u8]) -> impl Iterator<Item = String> {
    [BASE64_STANDARD, BASE64_URL].into_iter().flat_map(move |alphabet| {
        (0..3).flat_map(move |n_before| {
            let n_bits = 8 * (n_before + bytes.len());
            let padded = [&[0, 0][..n_before], bytes].concat();
            let digits = base64_digits(&padded, alphabet);
            let start = (8 * n_before).div_ceil(6);
            [digits[start..n_bits / 6].to_owned(), digits[start..].to_owned()]
        })
    })
}

const BASE64_STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes bytes in base64, without padding.
fn base64_digits(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut digits = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| usize::from(group.get(index).copied().unwrap_or_default());
        let all =
            [at(0) >> 2, ((at(0) & 3) << 4) | (at(1) >> 4), ((at(1) & 15) << 2) | (at(2) >> 6), at(2) & 63];
        digits.extend(all.iter().take(group.len() + 1).map(|digit| char::from(alphabet[*digit])));
    }
    digits
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

    #[test]
    fn encoded_secrets_are_redacted() {
        let secret = "p@ss/w+rd %41é=long&secret?1";
        let redactor = Redactor::with_escapes([secret]);
        // Written by other programs.
        for encoded in [
            // JSON in ASCII, with small and capital digits.
            r"p@ss/w+rd %41\u00e9=long&secret?1",
            r"p@ss/w+rd %41\u00E9=long&secret?1",
            // A component, a path, a form, and small digits.
            "p%40ss%2Fw%2Brd%20%2541%C3%A9%3Dlong%26secret%3F1",
            "p%40ss/w%2Brd%20%2541%C3%A9%3Dlong%26secret%3F1",
            "p%40ss%2Fw%2Brd+%2541%C3%A9%3Dlong%26secret%3F1",
            "p%40ss%2fw%2brd%20%2541%c3%a9%3dlong%26secret%3f1",
        ] {
            assert_eq!(redactor.text(&format!("<{encoded}>")), "<[redacted]>", "{encoded}");
        }
        let javascript = Redactor::with_escapes(["it's (a) secret!"]);
        assert_eq!(javascript.text("it's%20(a)%20secret!"), REDACTED);
        let [whole, named, third] = [
            "cEBzcy93K3JkICU0McOpPWxvbmcmc2VjcmV0PzE=",
            "dXNlcjpwQHNzL3crcmQgJTQxw6k9bG9uZyZzZWNyZXQ/MQ==",
            "eHhwQHNzL3crcmQgJTQxw6k9bG9uZyZzZWNyZXQ/MXg=",
        ];
        assert_eq!(redactor.text(whole), "[redacted]=");
        assert_eq!(redactor.text(named), "dXNlcjp[redacted]==");
        assert_eq!(redactor.text(&named.replace('/', "_")), "dXNlcjp[redacted]==");
        assert_eq!(redactor.text(third), "eHh[redacted]Xg=");
        assert_eq!(Redactor::with_escapes(["rosa"]).text("cm9zYQ== cm9zYQ"), "cm9zYQ== cm9zYQ");
    }

    #[test]
    fn every_alignment_of_base64_is_redacted() {
        let secret = "\u{fb}\u{3ff}>>>???secret-of-some-length";
        let redactor = Redactor::with_escapes([secret]);
        for (n_before, n_behind) in (0..6).flat_map(|before| (0..6).map(move |behind| (before, behind))) {
            let text = format!("{}{secret}{}", "b".repeat(n_before), "a".repeat(n_behind));
            for alphabet in [BASE64_STANDARD, BASE64_URL] {
                let encoded = base64_digits(text.as_bytes(), alphabet);
                let clean = redactor.text(&encoded).into_owned();
                let left = clean.replace(REDACTED, "").len();
                assert!(clean.contains(REDACTED), "{encoded}");
                assert!(
                    left <= (n_before * 8).div_ceil(6) + (n_behind * 8).div_ceil(6) + 1,
                    "{encoded}: {clean}"
                );
            }
        }
    }

    #[test]
    fn a_line_of_a_secret_is_redacted_in_every_form() {
        let account = "{\n  \"private_key\": \"MIIE\\nvQIB\",\n  \"client\": \"a b\"\n}";
        let redactor = Redactor::with_escapes([account]);
        for line in [
            r#"\"private_key\": \"MIIE\\nvQIB\","#,
            r#""private_key": "MIIE\nvQIB","#,
            "InByaXZhdGVfa2V5IjogIk1JSUVcbnZRSUIiLA",
            "%22private_key%22%3A%20%22MIIE%5CnvQIB%22%2C",
        ] {
            let clean = redactor.text(line).into_owned();
            assert!(!clean.contains("MIIE") && clean.contains(REDACTED), "{line}: {clean}");
        }
    }
}
