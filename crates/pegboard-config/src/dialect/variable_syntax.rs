//! Translates the variable syntax of other programs to the native one.

use std::collections::HashMap;
use std::fmt::Write;

use super::client_file::sanitize_name;
use crate::variables::{escape_own_references, is_name, is_reference, reference_length};

/// Variable syntax of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariableSyntax {
    /// No variables: every character is literal.
    Plain,
    /// `${NAME}`, `${NAME:-default}` and the editor forms `${env:NAME}`, `${input:id}`, `${workspaceFolder}`.
    Braces,
    /// `Braces`, and `$NAME` in upper case.
    UppercaseNames,
    /// `$NAME` and `${NAME}`. In `env` and `headers` an unset variable is empty; elsewhere the reference is
    /// kept as written for the started program.
    Shell,
    /// `Shell` where an unset variable is kept as written.
    ShellOrLiteral,
    /// `Shell`, and `$(command)`, which becomes an input.
    ShellWithCommands,
    /// `{env:NAME}` and `{file:path}`; an unset variable is empty.
    Curly,
    /// `${{ secrets.NAME }}`.
    Template,
}

impl VariableSyntax {
    /// Returns the syntax of the value under this key of a server entry.
    pub(super) fn for_key(self, key: &str) -> Self {
        match self {
            Self::Shell if !["env", "headers"].contains(&key) => Self::ShellOrLiteral,
            _ => self,
        }
    }
}

/// Default values of inputs, by ID.
pub(super) type InputDefaults = HashMap<String, String>;

/// Translates a text to native syntax. Text that is not a variable there is escaped here.
pub(super) fn to_native(text: &str, syntax: VariableSyntax, input_defaults: &InputDefaults) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let n_bytes = match syntax {
            VariableSyntax::Plain => None,
            VariableSyntax::Braces => braces(rest, input_defaults, &mut written),
            VariableSyntax::UppercaseNames => braces(rest, input_defaults, &mut written).or_else(|| {
                dollar(rest, |name| !name.chars().any(|each| each.is_ascii_lowercase()), &mut written)
            }),
            VariableSyntax::Shell => shell(rest, UnsetVariable::Empty, &mut written),
            VariableSyntax::ShellOrLiteral => shell(rest, UnsetVariable::AsWritten, &mut written),
            VariableSyntax::ShellWithCommands => {
                command(rest, &mut written).or_else(|| shell(rest, UnsetVariable::Empty, &mut written))
            }
            VariableSyntax::Curly => curly(rest, &mut written),
            VariableSyntax::Template => template(rest, &mut written),
        };
        let n_bytes = n_bytes.unwrap_or_else(|| {
            // A literal brace must be escaped.
            written.push_str(if rest.starts_with("${") { "$${" } else { "" });
            if rest.starts_with("${") {
                return 2;
            }
            written.push(first);
            first.len_utf8()
        });
        rest = &rest[n_bytes..];
    }
    escape_own_references(&written)
}

/// Translates a reference in native form. `$${` is the escape.
fn braces(text: &str, input_defaults: &InputDefaults, written: &mut String) -> Option<usize> {
    if text.starts_with("$${") {
        written.push_str("$${");
        return Some(3);
    }
    if !text.starts_with("${") {
        return None;
    }
    let length = reference_length(text)?;
    let inner = &text[2..length - 1];
    let asked = inner.strip_prefix("input:").and_then(|id| Some((id, input_defaults.get(id)?)));
    match asked {
        Some((id, default)) => {
            let _ = write!(written, "${{input:{id}:-{default}}}");
        }
        // Editor-only references are kept, so that expansion reports them.
        None if is_reference(inner) || ["command:", "config:"].iter().any(|word| inner.starts_with(word)) => {
            written.push_str(&text[..length]);
        }
        None => return None,
    }
    Some(length)
}

/// Value of an unset variable.
#[derive(Clone, Copy)]
enum UnsetVariable {
    Empty,
    AsWritten,
}

fn shell(text: &str, unset: UnsetVariable, written: &mut String) -> Option<usize> {
    let fallback = |name: &str| match unset {
        UnsetVariable::Empty => String::new(),
        UnsetVariable::AsWritten => format!("${name}"),
    };
    if let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.split('}').next())
        && text.len() > inner.len() + 2
    {
        let (name, default) =
            inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
        if !is_name(name) {
            return None;
        }
        let default = default.map_or_else(|| fallback(name), str::to_owned);
        let _ = write!(written, "${{{name}:-{default}}}");
        return Some(inner.len() + 3);
    }
    let name = word_after(text, "$")?;
    let _ = write!(written, "${{{name}:-{}}}", fallback(name));
    Some(name.len() + 1)
}

fn command(text: &str, written: &mut String) -> Option<usize> {
    let (inner, _) = text.strip_prefix("$(")?.split_once(')')?;
    let _ = write!(written, "${{input:{}}}", sanitize_name(inner));
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
    // A secret may be scoped to an owner: `secrets.ada.GITHUB_TOKEN`.
    let name = name.rsplit('.').next().filter(|name| is_name(name))?;
    let _ = write!(written, "${{{name}}}");
    Some(inner.len() + 5)
}

/// Returns the variable name after a marker.
fn word_after<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(mark)?;
    let end = rest.find(|each: char| !(each.is_ascii_alphanumeric() || each == '_')).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_variables_are_translated_and_other_text_is_escaped() {
        for (syntax, text, expected) in [
            (VariableSyntax::Plain, "${HOME} $$ $A", "$${HOME} $$ $A"),
            (VariableSyntax::Plain, "a ${", "a $${"),
            (VariableSyntax::Braces, "${A} ${A:-b} ${env:A} ${input:x}", "${A} ${A:-b} ${env:A} ${input:x}"),
            (VariableSyntax::Braces, "${input:known}", "${input:known:-a default}"),
            (VariableSyntax::Braces, "${x%%.*} ${#a} ${", "$${x%%.*} $${#a} $${"),
            (VariableSyntax::Braces, "pa$$wd $A", "pa$$wd $A"),
            (VariableSyntax::Braces, "$${A}", "$${A}"),
            (VariableSyntax::Braces, "${command:ask.me}", "${command:ask.me}"),
            (VariableSyntax::Braces, "${cmd:id} ${keyring:github}", "$${cmd:id} $${keyring:github}"),
            (VariableSyntax::Braces, "${A:-${cmd:id}}", "${A:-$${cmd:id}}"),
            (VariableSyntax::ShellOrLiteral, "${A:-${cmd:id}}", "${A:-$${cmd:id}}"),
            (VariableSyntax::UppercaseNames, "$TOKEN $token ${A}", "${TOKEN} $token ${A}"),
            (VariableSyntax::Shell, "Bearer $A-${B}", "Bearer ${A:-}-${B:-}"),
            (VariableSyntax::Shell, "${B:-c} $5 $ ${a b}", "${B:-c} $5 $ $${a b}"),
            (VariableSyntax::Shell, "${B", "$${B"),
            (
                VariableSyntax::ShellOrLiteral,
                "cd $A && echo ${B} ${C:-d}",
                "cd ${A:-$A} && echo ${B:-$B} ${C:-d}",
            ),
            (VariableSyntax::Shell, "$(gh auth token)", "$(gh auth token)"),
            (VariableSyntax::ShellWithCommands, "$(gh auth token) $A $(", "${input:gh-auth-token} ${A:-} $("),
            (VariableSyntax::Curly, "Bearer {env:A} {file:./key}", "Bearer ${A:-} ${file:./key}"),
            (VariableSyntax::Curly, "{} {a:b} ${A} {env:}", "{} {a:b} $${A} {env:}"),
            (VariableSyntax::Template, "${{ secrets.A }} ${{inputs.B}} ${A}", "${A} ${B} $${A}"),
            (VariableSyntax::Template, "${{ secrets.ada.A }} ${{ x }}", "${A} $${{ x }}"),
            (VariableSyntax::Curly, "ünï{env:A}cödé", "ünï${A:-}cödé"),
        ] {
            let input_defaults = InputDefaults::from([("known".to_owned(), "a default".to_owned())]);
            assert_eq!(to_native(text, syntax, &input_defaults), expected, "{syntax:?} {text}");
        }
    }
}
