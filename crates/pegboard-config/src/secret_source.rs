//! Secrets that are in no file and no variable: those of the keyring, and the output of commands.

use std::fmt;
use std::sync::Arc;

use pegboard_core::secret::Secret;

/// Source of the values of `${keyring:NAME}` and `${cmd:COMMAND}`.
pub trait SecretSource: Send + Sync {
    /// Returns the secret of a name; `None` if there is none. The error says why it cannot be read.
    fn keyring(&self, name: &str) -> Result<Option<Secret>, String>;

    /// Runs a program with its arguments and returns what it prints. The error says what went wrong.
    fn command(&self, words: &[String]) -> Result<Secret, String>;
}

/// A source that can be shared.
#[derive(Clone)]
pub(crate) struct SharedSecretSource(pub(crate) Arc<dyn SecretSource>);

impl fmt::Debug for SharedSecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecretSource")
    }
}

/// Source of a value for every secret, for looking at a file without reading any.
pub(crate) struct AssumedSecrets;

/// Returns the value of a secret that is not read. It occurs in no other text, and is a URL, since a secret may be one.
pub fn assumed_secret() -> Secret {
    Secret::new("https://assumed-secret.invalid/")
}

impl SecretSource for AssumedSecrets {
    fn keyring(&self, _name: &str) -> Result<Option<Secret>, String> {
        Ok(Some(assumed_secret()))
    }

    fn command(&self, _words: &[String]) -> Result<Secret, String> {
        Ok(assumed_secret())
    }
}

/// Splits a command into words at spaces. Quotes keep spaces, and nothing else is special: no shell is involved.
/// `None` if a quote is not closed or there is no word.
pub(crate) fn command_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        end if end == character => break,
                        inside => word.push(inside),
                    }
                }
            }
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_at_spaces_outside_of_quotes() {
        for (command, expected) in [
            ("gh auth token", Some(&["gh", "auth", "token"][..])),
            (r#" op read "op://a vault/b"  -x '' "#, Some(&["op", "read", "op://a vault/b", "-x", ""])),
            (r#"a"b c"d 'e"f'"#, Some(&["ab cd", "e\"f"])),
            (
                "pass $(id) `id` | x ; y > z \\",
                Some(&["pass", "$(id)", "`id`", "|", "x", ";", "y", ">", "z", "\\"]),
            ),
            ("'open", None),
            ("  ", None),
        ] {
            let words = command_words(command);
            assert_eq!(
                words.as_deref(),
                expected
                    .map(|words| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
                    .as_deref(),
                "{command}"
            );
        }
    }
}
