//! Variables in the syntax of other programs, written in ours.

use std::collections::HashMap;
use std::fmt::Write;

use super::file::plain_name;
use crate::variables::{is_name, is_reference, length_of_reference};

/// How a program writes variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Not at all: every character is meant as it is.
    Plain,
    /// `${NAME}`, `${NAME:-default}`, and what editors have: `${env:NAME}`, `${input:id}`, `${workspaceFolder}`.
    Braces,
    /// The same, and `$NAME` in capitals.
    Capitals,
    /// `$NAME` and `${NAME}`, which are empty where the variable is not set: in variables and headers. Elsewhere they stay
    /// as they are then, for the program that is started.
    Shell,
    /// The same where it stays as it is.
    Left,
    /// The same, and `$(command)`, in whose place somebody must say what the command would.
    Script,
    /// `{env:NAME}` and `{file:path}`, which are empty where the variable is not set.
    Curly,
    /// `${{ secrets.NAME }}`.
    Template,
}

impl Syntax {
    /// How variables are written in what a server says under this key.
    pub(super) fn under(self, key: &str) -> Self {
        match self {
            Self::Shell if !["env", "headers"].contains(&key) => Self::Left,
            _ => self,
        }
    }
}

/// What stands in for values that a person would be asked for, by their ids.
pub(super) type Answers = HashMap<String, String>;

/// A text in our syntax. What is no variable there is none here either.
pub(super) fn ours(text: &str, syntax: Syntax, answers: &Answers) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let n_bytes = match syntax {
            Syntax::Plain => None,
            Syntax::Braces => braces(rest, answers, &mut written),
            Syntax::Capitals => braces(rest, answers, &mut written).or_else(|| {
                dollar(rest, |name| !name.chars().any(|each| each.is_ascii_lowercase()), &mut written)
            }),
            Syntax::Shell => shell(rest, Unset::Empty, &mut written),
            Syntax::Left => shell(rest, Unset::AsWritten, &mut written),
            Syntax::Script => command(rest, &mut written).or_else(|| shell(rest, Unset::Empty, &mut written)),
            Syntax::Curly => curly(rest, &mut written),
            Syntax::Template => template(rest, &mut written),
        };
        let n_bytes = n_bytes.unwrap_or_else(|| {
            // A brace that begins no variable there must begin none here.
            written.push_str(if rest.starts_with("${") { "$${" } else { "" });
            if rest.starts_with("${") {
                return 2;
            }
            written.push(first);
            first.len_utf8()
        });
        rest = &rest[n_bytes..];
    }
    written
}

/// A reference of the kind that we have, too. `$${` is one for its characters.
fn braces(text: &str, answers: &Answers, written: &mut String) -> Option<usize> {
    if text.starts_with("$${") {
        written.push_str("$${");
        return Some(3);
    }
    if !text.starts_with("${") {
        return None;
    }
    let length = length_of_reference(text)?;
    let inner = &text[2..length - 1];
    let asked = inner.strip_prefix("input:").and_then(|id| Some((id, answers.get(id)?)));
    match asked {
        Some((id, default)) => {
            let _ = write!(written, "${{input:{id}:-{default}}}");
        }
        // What an editor would run or look up is told as what cannot be filled in.
        None if is_reference(inner) || ["command:", "config:"].iter().any(|word| inner.starts_with(word)) => {
            written.push_str(&text[..length]);
        }
        None => return None,
    }
    Some(length)
}

/// What a variable is that is not set.
#[derive(Clone, Copy)]
enum Unset {
    Empty,
    AsWritten,
}

fn shell(text: &str, unset: Unset, written: &mut String) -> Option<usize> {
    let otherwise = |name: &str| match unset {
        Unset::Empty => String::new(),
        Unset::AsWritten => format!("${name}"),
    };
    if let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.split('}').next())
        && text.len() > inner.len() + 2
    {
        let (name, default) =
            inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
        if !is_name(name) {
            return None;
        }
        let default = default.map_or_else(|| otherwise(name), str::to_owned);
        let _ = write!(written, "${{{name}:-{default}}}");
        return Some(inner.len() + 3);
    }
    let name = word_after(text, "$")?;
    let _ = write!(written, "${{{name}:-{}}}", otherwise(name));
    Some(name.len() + 1)
}

fn command(text: &str, written: &mut String) -> Option<usize> {
    let (inner, _) = text.strip_prefix("$(")?.split_once(')')?;
    let _ = write!(written, "${{input:{}}}", plain_name(inner));
    Some(inner.len() + 3)
}

fn dollar(text: &str, is_one: impl Fn(&str) -> bool, written: &mut String) -> Option<usize> {
    let name = word_after(text, "$").filter(|name| is_one(name))?;
    let _ = write!(written, "${{{name}}}");
    Some(name.len() + 1)
}

fn curly(text: &str, written: &mut String) -> Option<usize> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    match inner.split_once(':')? {
        ("env", name) if is_name(name) => {
            let _ = write!(written, "${{{name}:-}}");
        }
        ("file", path) if !path.is_empty() => {
            let _ = write!(written, "${{file:{path}}}");
        }
        _ => return None,
    }
    Some(inner.len() + 2)
}

fn template(text: &str, written: &mut String) -> Option<usize> {
    let (inner, _) = text.strip_prefix("${{")?.split_once("}}")?;
    let path = inner.trim();
    let name = ["secrets.", "inputs.", "env."].iter().find_map(|kind| path.strip_prefix(kind))?;
    // A secret may be one of somebody: `secrets.ada.GITHUB_TOKEN`.
    let name = name.rsplit('.').next().filter(|name| is_name(name))?;
    let _ = write!(written, "${{{name}}}");
    Some(inner.len() + 5)
}

/// The name that follows a mark.
fn word_after<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(mark)?;
    let end = rest.find(|each: char| !(each.is_ascii_alphanumeric() || each == '_')).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_others_are_ours_and_everything_else_is_what_it_is() {
        for (syntax, text, expected) in [
            (Syntax::Plain, "${HOME} $$ $A", "$${HOME} $$ $A"),
            (Syntax::Plain, "a ${", "a $${"),
            (Syntax::Braces, "${A} ${A:-b} ${env:A} ${input:x}", "${A} ${A:-b} ${env:A} ${input:x}"),
            (Syntax::Braces, "${input:known}", "${input:known:-a default}"),
            (Syntax::Braces, "${x%%.*} ${#a} ${", "$${x%%.*} $${#a} $${"),
            (Syntax::Braces, "pa$$wd $A", "pa$$wd $A"),
            (Syntax::Braces, "$${A}", "$${A}"),
            (Syntax::Braces, "${command:ask.me}", "${command:ask.me}"),
            (Syntax::Capitals, "$TOKEN $token ${A}", "${TOKEN} $token ${A}"),
            (Syntax::Shell, "Bearer $A-${B}", "Bearer ${A:-}-${B:-}"),
            (Syntax::Shell, "${B:-c} $5 $ ${a b}", "${B:-c} $5 $ $${a b}"),
            (Syntax::Shell, "${B", "$${B"),
            (Syntax::Left, "cd $A && echo ${B} ${C:-d}", "cd ${A:-$A} && echo ${B:-$B} ${C:-d}"),
            (Syntax::Shell, "$(gh auth token)", "$(gh auth token)"),
            (Syntax::Script, "$(gh auth token) $A $(", "${input:gh-auth-token} ${A:-} $("),
            (Syntax::Curly, "Bearer {env:A} {file:./key}", "Bearer ${A:-} ${file:./key}"),
            (Syntax::Curly, "{} {a:b} ${A} {env:}", "{} {a:b} $${A} {env:}"),
            (Syntax::Template, "${{ secrets.A }} ${{inputs.B}} ${A}", "${A} ${B} $${A}"),
            (Syntax::Template, "${{ secrets.ada.A }} ${{ x }}", "${A} $${{ x }}"),
            (Syntax::Curly, "ünï{env:A}cödé", "ünï${A:-}cödé"),
        ] {
            let answers = Answers::from([("known".to_owned(), "a default".to_owned())]);
            assert_eq!(ours(text, syntax, &answers), expected, "{syntax:?} {text}");
        }
    }
}
