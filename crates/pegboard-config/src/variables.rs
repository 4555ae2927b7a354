//! `${VARIABLE}` in what somebody wrote.
//!
//! A text is gone through once, from left to right. What is filled in is never looked at again, so a value may hold
//! any character.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::clients::{Client, clients};

/// How many bytes of a file `${file:…}` takes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// What the names of variables begin with that hold what a person would be asked for.
const ANSWER: &str = "PEGBOARD_INPUT_";

/// What variables are looked up in.
pub(crate) struct Surroundings<'s> {
    pub(crate) environment: &'s dyn Fn(&str) -> Option<String>,
    /// The folder of the file that is read.
    pub(crate) folder: PathBuf,
}

/// A text with its variables filled in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) text: String,
    /// What was filled in and may be secret.
    pub(crate) secrets: Vec<String>,
    /// References that could not be filled in.
    pub(crate) faults: Vec<Fault>,
}

/// A reference that cannot be filled in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where it is in the text.
    pub(crate) range: Range<usize>,
    /// The variable that is missing, if that is what is wrong.
    pub(crate) needs: Option<String>,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Surroundings<'_> {
    /// Fills in every variable of a text.
    pub(crate) fn fill(&self, text: &str) -> Filled {
        let mut filled = Filled::default();
        let mut at = 0;
        while let Some(found) = text[at..].find('$').map(|found| at + found) {
            filled.text.push_str(&text[at..found]);
            let rest = &text[found..];
            if rest.starts_with("$${") {
                filled.text.push_str("${");
                at = found + 3;
            } else if !rest.starts_with("${") {
                filled.text.push('$');
                at = found + 1;
            } else if let Some(length) = length_of_reference(rest) {
                at = found + length;
                self.fill_reference(text, found..at, &mut filled);
            } else {
                filled.faults.push(Fault {
                    range: found..text.len(),
                    needs: None,
                    message: "Malformed syntax: unclosed brace".to_owned(),
                    help: "close it with }, or write $${ for the characters themselves".to_owned(),
                });
                return filled;
            }
        }
        filled.text.push_str(&text[at..]);
        filled
    }

    fn fill_reference(&self, text: &str, range: Range<usize>, filled: &mut Filled) {
        let inner = &text[range.start + 2..range.end - 1];
        // Filled in at each call, from the call's own parameters.
        if inner.starts_with("parameters.") {
            filled.text.push_str(&text[range]);
            return;
        }
        match Reference::read(inner).ok_or_else(|| malformed(inner)).and_then(|found| self.resolve(&found)) {
            Ok(Found::Plain(value)) => filled.text.push_str(&value),
            Ok(Found::Secret(value)) => {
                filled.text.push_str(&value);
                filled.secrets.push(value);
            }
            Ok(Found::Default(default)) => {
                let inside = self.fill(default);
                filled.text.push_str(&inside.text);
                filled.secrets.extend(inside.secrets);
                let moved = inside.faults.into_iter().map(|fault| Fault { range: range.clone(), ..fault });
                filled.faults.extend(moved);
            }
            Err(Missing { needs, message, help }) => {
                filled.faults.push(Fault { range, needs, message, help });
            }
        }
    }

    fn resolve<'t>(&self, reference: &Reference<'t>) -> Result<Found<'t>, Missing> {
        match reference {
            Reference::Folder => Ok(Found::Plain(self.folder.display().to_string())),
            Reference::Workspace => Ok(Found::Plain(workspace_of(&self.folder).display().to_string())),
            Reference::WorkspaceName => {
                let name = workspace_of(&self.folder).file_name();
                Ok(Found::Plain(name.unwrap_or_default().to_string_lossy().into_owned()))
            }
            Reference::Separator => Ok(Found::Plain(std::path::MAIN_SEPARATOR.to_string())),
            Reference::Home => {
                let home = (self.environment)("HOME").or_else(|| (self.environment)("USERPROFILE"));
                home.map(Found::Plain).ok_or_else(|| not_set("HOME", None))
            }
            Reference::File(path) => self.read_file(path).map(Found::Secret),
            Reference::Input { id, default } => {
                let name = format!("{ANSWER}{}", id.to_uppercase().replace(['-', '.', ' '], "_"));
                let answer = (self.environment)(&name).map(Found::Secret);
                answer.or(default.map(Found::Default)).ok_or_else(|| not_set(&name, None))
            }
            Reference::Variable { name, otherwise } => match ((self.environment)(name), otherwise) {
                (Some(value), _) => Ok(Found::Secret(value)),
                (None, Some(Otherwise::Default(default))) => Ok(Found::Default(default)),
                (None, Some(Otherwise::Message(message))) => Err(not_set(name, Some(message))),
                (None, None) => Err(not_set(name, None)),
            },
        }
    }

    /// The text of a file beside the one that is read.
    pub(crate) fn read_file(&self, path: &str) -> Result<String, Missing> {
        let path = self.folder.join(path);
        let unusable = |why: String| Missing {
            needs: None,
            message: format!("the file {} cannot be filled in: {why}", path.display()),
            help: "check the path; it begins in the folder of this file".to_owned(),
        };
        let text = read_some(&path).map_err(|error| unusable(error.to_string()))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(unusable(format!("it has more than {} KiB", MAX_FILE_BYTES / 1024)));
        }
        let text = String::from_utf8(text).map_err(|_| unusable("it is no text".to_owned()))?;
        // Editors end the last line, and nobody means that as a part of a password.
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn read_some(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a reference leads to.
enum Found<'t> {
    Plain(String),
    Secret(String),
    /// Nothing, but there is a default, which may refer to something itself.
    Default(&'t str),
}

/// Why a reference leads to nothing.
pub(crate) struct Missing {
    needs: Option<String>,
    pub(crate) message: String,
    pub(crate) help: String,
}

fn not_set(name: &str, message: Option<&str>) -> Missing {
    let told = message.filter(|message| !message.is_empty());
    Missing {
        needs: Some(name.to_owned()),
        message: told.map_or_else(
            || format!("the variable {name} is not set"),
            |told| format!("the variable {name} is not set: {told}"),
        ),
        help: if name.starts_with(ANSWER) {
            format!("export {name}=…")
        } else {
            format!("export {name}=…   or give a default: ${{{name}:-}}")
        },
    }
}

/// It does not say what was written, since a secret may be among it.
fn malformed(inner: &str) -> Missing {
    if ["command:", "config:"].iter().any(|word| inner.starts_with(word)) {
        return Missing {
            needs: None,
            message: "only an editor could fill this in".to_owned(),
            help: "put the value into a variable, and write ${env:NAME}".to_owned(),
        };
    }
    Missing {
        needs: None,
        message: "Malformed syntax: this names no variable".to_owned(),
        help: "write ${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:PATH}, ${input:ID}, ${userHome}, \
               ${configDir}, ${workspaceFolder} or ${workspaceFolderBasename}, or $${ for the characters themselves"
            .to_owned(),
    }
}

/// What stands between the braces.
enum Reference<'t> {
    Variable { name: &'t str, otherwise: Option<Otherwise<'t>> },
    File(&'t str),
    Input { id: &'t str, default: Option<&'t str> },
    Home,
    Folder,
    Workspace,
    WorkspaceName,
    Separator,
}

enum Otherwise<'t> {
    Default(&'t str),
    Message(&'t str),
}

impl<'t> Reference<'t> {
    fn read(inner: &'t str) -> Option<Self> {
        match inner {
            "userHome" => return Some(Self::Home),
            "configDir" => return Some(Self::Folder),
            "workspaceFolder" | "cwd" => return Some(Self::Workspace),
            "workspaceFolderBasename" => return Some(Self::WorkspaceName),
            "pathSeparator" | "/" => return Some(Self::Separator),
            _ => {}
        }
        if let Some(path) = inner.strip_prefix("file:") {
            return (!path.is_empty()).then_some(Self::File(path));
        }
        if let Some(id) = inner.strip_prefix("input:") {
            let (id, default) = id.split_once(":-").map_or((id, None), |(id, default)| (id, Some(default)));
            return (!id.is_empty()).then_some(Self::Input { id, default });
        }
        let inner = inner.strip_prefix("env:").unwrap_or(inner);
        let (name, otherwise) = match inner.split_once(':') {
            None => (inner, None),
            Some((name, rest)) => {
                let default = rest.strip_prefix('-').map(Otherwise::Default);
                (name, Some(default.or_else(|| rest.strip_prefix('?').map(Otherwise::Message))?))
            }
        };
        is_name(name).then_some(Self::Variable { name, otherwise })
    }
}

/// A text that means the same wherever it stands: what begins in the folder of its file is written out.
pub(crate) fn anchored(text: &str, folder: &Path) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find("${") {
        let (before, reference) = rest.split_at(found);
        written.push_str(before);
        let Some(length) = length_of_reference(reference).filter(|_| !before.ends_with('$')) else {
            written.push_str("${");
            rest = &reference[2..];
            continue;
        };
        let here = match Reference::read(&reference[2..length - 1]) {
            Some(Reference::Folder) => Some(folder.display().to_string()),
            Some(Reference::Workspace) => Some(workspace_of(folder).display().to_string()),
            Some(Reference::WorkspaceName) => {
                workspace_of(folder).file_name().map(|name| name.to_string_lossy().into_owned())
            }
            Some(Reference::File(path)) => Some(format!("${{file:{}}}", folder.join(path).display())),
            Some(
                Reference::Variable { .. } | Reference::Input { .. } | Reference::Home | Reference::Separator,
            )
            | None => None,
        };
        written.push_str(here.as_deref().unwrap_or(&reference[..length]));
        rest = &reference[length..];
    }
    written.push_str(rest);
    written
}

/// A text with its variables written in another way, which `write` knows by their names. Why not, if one of them is more
/// than a name.
pub(crate) fn rewritten(text: &str, write: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find("${") {
        let (before, reference) = rest.split_at(found);
        if let Some(before) = before.strip_suffix('$') {
            written.push_str(before);
            written.push_str("${");
            rest = &reference[2..];
            continue;
        }
        written.push_str(before);
        let length = length_of_reference(reference).unwrap_or(reference.len());
        let inner = reference[2..length].trim_end_matches('}');
        match Reference::read(inner) {
            Some(Reference::Variable { name, otherwise: None | Some(Otherwise::Message(_)) }) => {
                written.push_str(&write(name).ok_or_else(|| format!("the variable {name}"))?);
            }
            Some(Reference::Variable { name, otherwise: Some(Otherwise::Default(_)) }) => {
                return Err(format!("a default for the variable {name}"));
            }
            Some(Reference::Input { id, .. }) => return Err(format!("the question {id}")),
            Some(Reference::File(_)) => return Err("what is in another file".to_owned()),
            Some(_) | None => return Err("a place in the file system".to_owned()),
        }
        rest = &reference[length..];
    }
    written.push_str(rest);
    Ok(written)
}

/// The folder that a file in `folder` is about: one that a client keeps in a folder of its own, such as `.vscode`, is about
/// the one around it.
pub(crate) fn workspace_of(folder: &Path) -> &Path {
    let own = clients().iter().flat_map(Client::project).filter_map(|place| Path::new(place).parent());
    let n_steps = own.filter(|own| folder.ends_with(own)).map(|own| own.components().count()).max();
    folder.ancestors().nth(n_steps.unwrap_or(0)).unwrap_or(folder)
}

/// Whether what stands between the braces is a reference.
pub(crate) fn is_reference(inner: &str) -> bool {
    Reference::read(inner).is_some()
}

/// Whether a variable may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// How long the reference is that a text begins with. One more may stand in its default.
pub(crate) fn length_of_reference(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("${") && depth < 2 {
            depth += 1;
            at += 2;
        } else if rest.starts_with('}') {
            depth -= 1;
            at += 1;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Filled {
        let environment = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "B" => Some("2".to_owned()),
            "EMPTY" => Some(String::new()),
            "NEST" => Some("${A}".to_owned()),
            "HARD" => Some("p@$$w0rd!\n$&x".to_owned()),
            "PEGBOARD_INPUT_API_KEY" => Some("typed".to_owned()),
            "HOME" => Some("/home/ada".to_owned()),
            _ => None,
        };
        Surroundings { environment: &environment, folder: PathBuf::from("/etc/pegboard") }.fill(text)
    }

    #[test]
    fn variables_are_filled_in_once() {
        for (text, expected) in [
            ("${A}:${B}", "1:2"),
            ("${UNSET:-def}", "def"),
            ("${EMPTY:-def}", ""),
            ("${UNSET:-}", ""),
            ("${UNSET:-${B}}", "2"),
            ("${UNSET:-a ${UNSET:-b}}", "a b"),
            ("${A:?no A}", "1"),
            ("${env:A}", "1"),
            ("${NEST}", "${A}"),
            ("${HARD}", "p@$$w0rd!\n$&x"),
            ("p@$$w0rd!", "p@$$w0rd!"),
            ("$A 100$", "$A 100$"),
            ("$${A}", "${A}"),
            ("${parameters.id}", "${parameters.id}"),
            ("${input:api-key}", "typed"),
            ("${input:api-key:-none}", "typed"),
            ("${input:other:-a ${B}}", "a 2"),
            ("${userHome}/x", "/home/ada/x"),
            ("${configDir}", "/etc/pegboard"),
            ("${workspaceFolder} ${workspaceFolderBasename} ${cwd}", "/etc/pegboard pegboard /etc/pegboard"),
            ("ünï${A}cödé", "ünï1cödé"),
        ] {
            let filled = fill(text);
            assert_eq!((filled.text.as_str(), filled.faults), (expected, vec![]), "{text}");
        }
    }

    #[test]
    fn a_reference_that_leads_nowhere_is_told() {
        for (text, range, needs, message) in [
            ("x ${UNSET}", 2..10, Some("UNSET"), "the variable UNSET is not set"),
            ("${UNSET:?ask Ada}", 0..17, Some("UNSET"), "the variable UNSET is not set: ask Ada"),
            ("${UNSET:-${GONE}}", 0..17, Some("GONE"), "the variable GONE is not set"),
            ("${A} and ${B", 9..12, None, "Malformed syntax: unclosed brace"),
            ("${A", 0..3, None, "Malformed syntax: unclosed brace"),
            ("${}", 0..3, None, "Malformed syntax: this names no variable"),
            ("${A }", 0..5, None, "Malformed syntax: this names no variable"),
            ("${1A}", 0..5, None, "Malformed syntax: this names no variable"),
            ("${A:default}", 0..12, None, "Malformed syntax: this names no variable"),
            ("${cmd:ls}", 0..9, None, "Malformed syntax: this names no variable"),
        ] {
            let faults = fill(text).faults;
            let told: Vec<_> = faults
                .iter()
                .map(|fault| (fault.range.clone(), fault.needs.as_deref(), fault.message.as_str()))
                .collect();
            assert_eq!(told, [(range, needs, message)], "{text}");
        }
    }

    #[test]
    fn a_file_in_the_folder_of_a_client_is_about_the_folder_around_it() {
        for (folder, workspace) in [
            ("/src/rocket", "/src/rocket"),
            ("/src/rocket/.vscode", "/src/rocket"),
            ("/src/rocket/.kiro/settings", "/src/rocket"),
            ("/src/rocket/settings", "/src/rocket/settings"),
            ("/", "/"),
        ] {
            assert_eq!(workspace_of(Path::new(folder)), Path::new(workspace), "{folder}");
        }
    }

    #[test]
    fn a_text_can_be_made_to_mean_the_same_elsewhere() {
        for (text, expected) in [
            ("${configDir}/a ${workspaceFolder}/b", "/src/.vscode/a /src/b"),
            ("${workspaceFolderBasename} ${A:-b} ${env:A}", "src ${A:-b} ${env:A}"),
            ("${file:key} ${file:/etc/key}", "${file:/src/.vscode/key} ${file:/etc/key}"),
            ("$${configDir} ${", "$${configDir} ${"),
        ] {
            assert_eq!(anchored(text, Path::new("/src/.vscode")), expected);
        }
    }

    #[test]
    fn what_came_from_outside_may_be_secret() {
        assert_eq!(fill("Bearer ${A}").secrets, ["1"]);
        assert_eq!(fill("${UNSET:-none} ${userHome}").secrets, Vec::<String>::new());
    }
}
