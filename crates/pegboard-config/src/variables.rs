//! Expansion of `${VARIABLE}` references.
//!
//! A text is scanned once, from left to right. Expanded values are never scanned again, so a value may
//! contain any character.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use pegboard_files::RegularFile;

use crate::Environment;
use crate::clients::{KnownClient, clients, is_user_file};
use crate::find::user_folder;
use crate::secret_source::{SharedSecretSource, command_words};

/// Maximum size of a file in `${file:…}`.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Prefix of variables that hold inputs.
const INPUT_PREFIX: &str = "PEGBOARD_INPUT_";

/// Context for expanding variables.
pub(crate) struct VariableContext<'s> {
    pub(crate) environment: Environment<'s>,
    /// Directory of the file being read.
    pub(crate) folder: PathBuf,
    /// Directory that its programs run in.
    pub(crate) workspace: FileWorkspace,
    /// Source of `${keyring:…}` and `${cmd:…}`.
    pub(crate) secrets: Option<SharedSecretSource>,
}

/// An expanded value that may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpandedValue {
    pub(crate) text: String,
    pub(crate) origin: ExpandedOrigin,
}

/// Origin of an expanded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpandedOrigin {
    /// A variable; its name tells if it may be secret.
    Variable(String),
    /// A file, or the answer to a question.
    Given,
    /// The keyring or a command, which hold nothing but secrets.
    Stored,
}

/// Directory that the programs of a file run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileWorkspace {
    /// The project of the file, or the directory of the command.
    Project(PathBuf),
    /// The home directory, for the user's own configuration.
    Home(PathBuf),
    /// The home directory, for a client's file of the user: each window of the client has another project.
    AnyProject(PathBuf),
}

impl FileWorkspace {
    /// Returns the workspace of a file.
    pub(crate) fn of_file(path: &Path, folder: &Path, environment: Environment<'_>) -> Self {
        let home = environment("HOME").or_else(|| environment("USERPROFILE")).map(PathBuf::from);
        let home = || home.clone().filter(|home| home.is_absolute() && home.is_dir());
        let is_plain = path.components().all(|component| component != Component::ParentDir);
        let is_users = is_plain && user_folder(environment).is_some_and(|users| path.starts_with(users));
        match (is_users, is_user_file(path, environment), home()) {
            (true, _, Some(home)) => Self::Home(home),
            (false, true, Some(home)) => Self::AnyProject(home),
            _ => Self::Project(workspace_of(folder).to_owned()),
        }
    }

    /// Returns the directory.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Project(folder) | Self::Home(folder) | Self::AnyProject(folder) => folder,
        }
    }
}

/// A text with its variables expanded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpandedText {
    pub(crate) text: String,
    /// Expanded values that may be secret.
    pub(crate) secrets: Vec<ExpandedValue>,
    /// References that could not be resolved.
    pub(crate) unresolved: Vec<UnresolvedReference>,
}

/// A reference that could not be resolved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnresolvedReference {
    /// Range in the text.
    pub(crate) range: Range<usize>,
    /// The unset variable, if that is the problem.
    pub(crate) needs: Option<String>,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl VariableContext<'_> {
    /// Expands all variables of a text.
    pub(crate) fn expand(&self, text: &str) -> ExpandedText {
        let mut filled = ExpandedText::default();
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
            } else if let Some(length) = reference_length(rest) {
                at = found + length;
                self.expand_reference(text, found..at, &mut filled);
            } else {
                filled.unresolved.push(UnresolvedReference {
                    range: found..text.len(),
                    needs: None,
                    message: "Malformed syntax: unclosed brace".to_owned(),
                    help: "close it with }, or use $${ for a literal ${".to_owned(),
                });
                return filled;
            }
        }
        filled.text.push_str(&text[at..]);
        filled
    }

    fn expand_reference(&self, text: &str, range: Range<usize>, filled: &mut ExpandedText) {
        let inner = &text[range.start + 2..range.end - 1];
        // Expanded at each call, from its parameters.
        if inner.starts_with("parameters.") {
            filled.text.push_str(&text[range]);
            return;
        }
        match Reference::read(inner).ok_or_else(|| malformed(inner)).and_then(|found| self.resolve(&found)) {
            Ok(ResolvedReference::Plain(value)) => filled.text.push_str(&value),
            Ok(ResolvedReference::Secret(text, origin)) => {
                filled.text.push_str(&text);
                filled.secrets.push(ExpandedValue { text, origin });
            }
            Ok(ResolvedReference::Default(default)) => {
                let inside = self.expand(default);
                filled.text.push_str(&inside.text);
                filled.secrets.extend(inside.secrets);
                let moved = inside
                    .unresolved
                    .into_iter()
                    .map(|reference| UnresolvedReference { range: range.clone(), ..reference });
                filled.unresolved.extend(moved);
            }
            Err(ResolveError { needs, message, help }) => {
                filled.unresolved.push(UnresolvedReference { range, needs, message, help });
            }
        }
    }

    fn resolve<'t>(&self, reference: &Reference<'t>) -> Result<ResolvedReference<'t>, ResolveError> {
        match reference {
            Reference::Folder => Ok(ResolvedReference::Plain(self.folder.display().to_string())),
            Reference::Workspace | Reference::WorkspaceName if self.has_any_project() => Err(any_project()),
            Reference::Workspace => {
                Ok(ResolvedReference::Plain(self.workspace.folder().display().to_string()))
            }
            Reference::WorkspaceName => {
                let name = self.workspace.folder().file_name();
                Ok(ResolvedReference::Plain(name.unwrap_or_default().to_string_lossy().into_owned()))
            }
            Reference::Separator => Ok(ResolvedReference::Plain(std::path::MAIN_SEPARATOR.to_string())),
            Reference::Home => {
                let home = (self.environment)("HOME").or_else(|| (self.environment)("USERPROFILE"));
                home.map(ResolvedReference::Plain).ok_or_else(|| not_set("HOME", None))
            }
            Reference::File(path) => {
                self.read_file(path).map(|text| ResolvedReference::Secret(text, ExpandedOrigin::Given))
            }
            Reference::Keyring(name) => self.keyring(name),
            Reference::Command(command) => self.command(command),
            Reference::Input { id, default } => {
                let name = format!("{INPUT_PREFIX}{}", id.to_uppercase().replace(['-', '.', ' '], "_"));
                let answer = (self.environment)(&name);
                let answer = answer.map(|text| ResolvedReference::Secret(text, ExpandedOrigin::Given));
                answer.or(default.map(ResolvedReference::Default)).ok_or_else(|| not_set(&name, None))
            }
            Reference::Variable { name, fallback } => match ((self.environment)(name), fallback) {
                (Some(value), _) => {
                    Ok(ResolvedReference::Secret(value, ExpandedOrigin::Variable((*name).to_owned())))
                }
                (None, Some(Fallback::Default(default))) => Ok(ResolvedReference::Default(default)),
                (None, Some(Fallback::Message(message))) => Err(not_set(name, Some(message))),
                (None, None) => Err(not_set(name, None)),
            },
        }
    }

    /// Returns a secret of the keyring.
    fn keyring(&self, name: &str) -> Result<ResolvedReference<'static>, ResolveError> {
        let set = format!("pegboard secret set {name}");
        let source = self.secrets.as_ref().ok_or_else(|| ResolveError {
            needs: None,
            message: "secrets of the keyring are not available here".to_owned(),
            help: "use a variable: ${NAME}".to_owned(),
        })?;
        match source.0.keyring(name) {
            Ok(Some(secret)) => {
                Ok(ResolvedReference::Secret(secret.reveal().to_owned(), ExpandedOrigin::Stored))
            }
            Ok(None) => {
                Err(ResolveError { needs: None, message: format!("there is no secret '{name}'"), help: set })
            }
            Err(why) => Err(ResolveError {
                needs: None,
                message: format!("cannot read the secret '{name}': {why}"),
                help: set,
            }),
        }
    }

    /// Returns the output of a command. Only the user's own file may start one: loading a file must not run what
    /// someone else wrote.
    fn command(&self, command: &str) -> Result<ResolvedReference<'static>, ResolveError> {
        let refused = |message: &str, help: &str| ResolveError {
            needs: None,
            message: message.to_owned(),
            help: help.to_owned(),
        };
        let FileWorkspace::Home(_) = &self.workspace else {
            return Err(refused(
                "${cmd:…} runs a command, which only the user's own configuration may do",
                "move the entry to pegboard.yaml in ~/.config/pegboard, or use ${keyring:NAME}",
            ));
        };
        let Some(source) = &self.secrets else {
            return Err(refused("commands are not run here", "use a variable: ${NAME}"));
        };
        let words = command_words(command)
            .ok_or_else(|| refused("the command of ${cmd:…} has a quote that is not closed", "close it"))?;
        match source.0.command(&words) {
            Ok(secret) if secret.reveal().is_empty() => Err(ResolveError {
                needs: None,
                message: format!("the command '{}' printed nothing", words[0]),
                help: format!("run it by hand: {command}"),
            }),
            Ok(secret) => Ok(ResolvedReference::Secret(secret.reveal().to_owned(), ExpandedOrigin::Stored)),
            Err(why) => Err(ResolveError {
                needs: None,
                message: format!("the command '{}' {why}", words[0]),
                help: format!("run it by hand: {command}"),
            }),
        }
    }

    fn has_any_project(&self) -> bool {
        matches!(self.workspace, FileWorkspace::AnyProject(_))
    }

    /// Reads a file relative to the one being read.
    pub(crate) fn read_file(&self, path: &str) -> Result<String, ResolveError> {
        let path = self.folder.join(path);
        let unusable = |why: String| ResolveError {
            needs: None,
            message: format!("cannot read {}: {why}", path.display()),
            help: "check the path; it is relative to the directory of this file".to_owned(),
        };
        let text = read_limited(&path).map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8(text).map_err(|_| unusable("it is not UTF-8".to_owned()))?;
        // Editors end the last line, which is not part of a secret.
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// Reads a regular file up to a limit.
pub(crate) fn read_limited(path: &Path) -> std::io::Result<Vec<u8>> {
    // The null device stands for no file.
    if path == Path::new("/dev/null") {
        return Ok(Vec::new());
    }
    let bytes = RegularFile::open(path)?.read(MAX_FILE_BYTES)?;
    bytes.ok_or_else(|| std::io::Error::other(format!("it is larger than {} KiB", MAX_FILE_BYTES / 1024)))
}

/// The target of a reference.
enum ResolvedReference<'t> {
    Plain(String),
    Secret(String, ExpandedOrigin),
    /// Unset, with a default that may contain a reference itself.
    Default(&'t str),
}

/// Error of resolving a reference.
pub(crate) struct ResolveError {
    needs: Option<String>,
    pub(crate) message: String,
    pub(crate) help: String,
}

fn not_set(name: &str, message: Option<&str>) -> ResolveError {
    let reported = message.filter(|message| !message.is_empty());
    ResolveError {
        needs: Some(name.to_owned()),
        message: reported.map_or_else(
            || format!("the variable {name} is not set"),
            |reported| format!("the variable {name} is not set: {reported}"),
        ),
        help: if name.starts_with(INPUT_PREFIX) {
            format!("export {name}=…")
        } else {
            format!("export {name}=…, or add a default: ${{{name}:-}}")
        },
    }
}

/// Creates the error for a reference to the project in a file that belongs to none.
fn any_project() -> ResolveError {
    ResolveError {
        needs: None,
        message: "only an editor can resolve this reference: the file belongs to no project".to_owned(),
        help: "replace it with a path, or move the entry to the client's file in the project".to_owned(),
    }
}

/// Creates the error for a malformed reference. The message omits the text, which may contain a secret.
fn malformed(inner: &str) -> ResolveError {
    if ["command:", "config:"].iter().any(|word| inner.starts_with(word)) {
        return ResolveError {
            needs: None,
            message: "only an editor can resolve this reference".to_owned(),
            help: "put the value in a variable and use ${env:NAME}".to_owned(),
        };
    }
    ResolveError {
        needs: None,
        message: "Malformed syntax: not a variable reference".to_owned(),
        help: "use ${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:PATH}, ${input:ID}, ${keyring:NAME}, \
               ${cmd:COMMAND}, ${userHome}, \
               ${configDir}, ${workspaceFolder} or ${workspaceFolderBasename}, or $${ for a literal ${"
            .to_owned(),
    }
}

/// A parsed reference.
enum Reference<'t> {
    Variable { name: &'t str, fallback: Option<Fallback<'t>> },
    File(&'t str),
    Input { id: &'t str, default: Option<&'t str> },
    Keyring(&'t str),
    Command(&'t str),
    Home,
    Folder,
    Workspace,
    WorkspaceName,
    Separator,
}

enum Fallback<'t> {
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
        if let Some(name) = inner.strip_prefix("keyring:") {
            return is_secret_reference(name).then_some(Self::Keyring(name));
        }
        if let Some(command) = inner.strip_prefix("cmd:") {
            return (!command.trim().is_empty()).then_some(Self::Command(command));
        }
        if let Some(id) = inner.strip_prefix("input:") {
            let (id, default) = id.split_once(":-").map_or((id, None), |(id, default)| (id, Some(default)));
            return (!id.is_empty()).then_some(Self::Input { id, default });
        }
        let inner = inner.strip_prefix("env:").unwrap_or(inner);
        let (name, fallback) = match inner.split_once(':') {
            None => (inner, None),
            Some((name, rest)) => {
                let default = rest.strip_prefix('-').map(Fallback::Default);
                (name, Some(default.or_else(|| rest.strip_prefix('?').map(Fallback::Message))?))
            }
        };
        is_name(name).then_some(Self::Variable { name, fallback })
    }
}

/// Makes references relative to the file absolute, so that the text means the same elsewhere.
pub(crate) fn with_absolute_references(text: &str, (folder, workspace): (&Path, &FileWorkspace)) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find("${") {
        let (before, reference) = rest.split_at(found);
        written.push_str(before);
        let Some(length) = reference_length(reference).filter(|_| !before.ends_with('$')) else {
            written.push_str("${");
            rest = &reference[2..];
            continue;
        };
        let here = match Reference::read(&reference[2..length - 1]) {
            Some(Reference::Folder) => Some(escaped_path(folder)),
            Some(Reference::Workspace | Reference::WorkspaceName)
                if matches!(workspace, FileWorkspace::AnyProject(_)) =>
            {
                None
            }
            Some(Reference::Workspace) => Some(escaped_path(workspace.folder())),
            Some(Reference::WorkspaceName) => {
                workspace.folder().file_name().map(|name| escaped_path(Path::new(name)))
            }
            Some(Reference::File(path)) => {
                let absolute = folder.join(path).display().to_string();
                // A brace in the name of a directory would end the reference.
                (!folder.to_string_lossy().contains(['{', '}'])).then(|| format!("${{file:{absolute}}}"))
            }
            Some(
                Reference::Variable { .. }
                | Reference::Input { .. }
                | Reference::Keyring(_)
                | Reference::Command(_)
                | Reference::Home
                | Reference::Separator,
            )
            | None => None,
        };
        written.push_str(here.as_deref().unwrap_or(&reference[..length]));
        rest = &reference[length..];
    }
    written.push_str(rest);
    written
}

/// Rewrites variable references with `write`, which gets their names. The error describes a reference that is
/// more than a name.
pub(crate) fn rewrite_references(
    text: &str,
    write: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
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
        let length = reference_length(reference).unwrap_or(reference.len());
        let inner = reference[2..length].trim_end_matches('}');
        match Reference::read(inner) {
            Some(Reference::Variable { name, fallback: None | Some(Fallback::Message(_)) }) => {
                written.push_str(&write(name).ok_or_else(|| format!("the variable {name}"))?);
            }
            Some(Reference::Variable { name, fallback: Some(Fallback::Default(_)) }) => {
                return Err(format!("a default for the variable {name}"));
            }
            Some(Reference::Input { id, .. }) => return Err(format!("the input {id}")),
            Some(Reference::File(_)) => return Err("the contents of another file".to_owned()),
            Some(Reference::Keyring(name)) => return Err(format!("the secret {name}")),
            Some(Reference::Command(_)) => return Err("the output of a command".to_owned()),
            Some(_) | None => return Err("a path reference".to_owned()),
        }
        rest = &reference[length..];
    }
    written.push_str(rest);
    Ok(written)
}

/// Returns the project directory of a file in `folder`: a client's own directory such as `.vscode` belongs to
/// its parent.
pub(crate) fn workspace_of(folder: &Path) -> &Path {
    let own = clients().iter().flat_map(KnownClient::project).filter_map(|place| Path::new(place).parent());
    let n_components = own.filter(|own| folder.ends_with(own)).map(|own| own.components().count()).max();
    folder.ancestors().nth(n_components.unwrap_or(0)).unwrap_or(folder)
}

/// Returns the paths of the files that a text refers to.
pub(crate) fn file_references(text: &str) -> Vec<&str> {
    let paths = references(text).into_iter().filter_map(|(_, reference)| match reference {
        Reference::File(path) => Some(path),
        _ => None,
    });
    paths.collect()
}

/// A reference to a value that is not in the file, and may be secret.
pub(crate) struct ValueReference<'t> {
    /// The reference as it is written.
    pub(crate) written: &'t str,
    /// Name of the variable, if it is one.
    pub(crate) variable: Option<&'t str>,
}

impl ValueReference<'_> {
    /// Returns the reference without a default, which may be a secret.
    pub(crate) fn source(&self) -> String {
        match self.variable {
            Some(name) => format!("${{{name}}}"),
            None => match self.written.split_once(":-") {
                Some((input, _)) if input.starts_with("${input:") => format!("{input}}}"),
                _ => self.written.to_owned(),
            },
        }
    }
}

/// Returns the references of a text to variables, inputs, other files, the keyring and the output of commands.
pub(crate) fn value_references(text: &str) -> Vec<ValueReference<'_>> {
    let values = references(text).into_iter().filter_map(|(written, reference)| match reference {
        Reference::Variable { name, .. } => Some(ValueReference { written, variable: Some(name) }),
        Reference::File(_) | Reference::Input { .. } | Reference::Keyring(_) | Reference::Command(_) => {
            Some(ValueReference { written, variable: None })
        }
        Reference::Home
        | Reference::Folder
        | Reference::Workspace
        | Reference::WorkspaceName
        | Reference::Separator => None,
    });
    values.collect()
}

/// Returns the references of a text as [`VariableContext::expand`] finds them. All defaults count, in use or not.
fn references(text: &str) -> Vec<(&str, Reference<'_>)> {
    let mut found_references = Vec::new();
    let mut rest = text;
    while let Some(found) = rest.find('$') {
        rest = &rest[found..];
        if !rest.starts_with("${") {
            rest = rest.strip_prefix("$${").unwrap_or(&rest[1..]);
            continue;
        }
        let Some(length) = reference_length(rest) else { break };
        if let Some(reference) = Reference::read(&rest[2..length - 1]) {
            let default = match &reference {
                Reference::Variable { fallback: Some(Fallback::Default(default)), .. }
                | Reference::Input { default: Some(default), .. } => *default,
                _ => "",
            };
            found_references.push((&rest[..length], reference));
            found_references.extend(references(default));
        }
        rest = &rest[length..];
    }
    found_references
}

/// Returns a path as the text of a configuration: what looks like a reference is a part of the path.
pub(crate) fn escaped_path(path: &Path) -> String {
    path.display().to_string().replace("${", "$${")
}

/// Returns `true` if the text between the braces is a valid reference.
pub(crate) fn is_reference(inner: &str) -> bool {
    Reference::read(inner).is_some()
}

/// Escapes the references that only Pegboard has, at any depth: in the files of other programs they are text, which
/// must not become a command when it is copied into the user's file.
pub(crate) fn escape_own_references(text: &str) -> String {
    let mut written = text.to_owned();
    for reference in ["${cmd:", "${keyring:"] {
        let found: Vec<usize> = written.match_indices(reference).map(|(at, _)| at).collect();
        for at in found.into_iter().rev() {
            if !written[..at].ends_with('$') {
                written.insert(at, '$');
            }
        }
    }
    written
}

/// Returns `true` if a text refers to the output of a command.
pub(crate) fn runs_command(text: &str) -> bool {
    text.match_indices("${cmd:").any(|(at, _)| !text[..at].ends_with('$'))
}

/// Returns `true` if the text may be the name of a secret.
fn is_secret_reference(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
}

/// Returns `true` if the text is a valid variable name.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the length of the reference that a text starts with. Its default may contain another reference.
pub(crate) fn reference_length(text: &str) -> Option<usize> {
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

    fn expand(text: &str) -> ExpandedText {
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
        let folder = PathBuf::from("/etc/pegboard");
        let workspace = FileWorkspace::Project(folder.clone());
        VariableContext { environment: &environment, folder, workspace, secrets: None }.expand(text)
    }

    #[test]
    fn variables_are_expanded_once() {
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
            let filled = expand(text);
            assert_eq!((filled.text.as_str(), filled.unresolved), (expected, vec![]), "{text}");
        }
    }

    #[test]
    fn an_unresolved_reference_is_reported() {
        for (text, range, needs, message) in [
            ("x ${UNSET}", 2..10, Some("UNSET"), "the variable UNSET is not set"),
            ("${UNSET:?ask Ada}", 0..17, Some("UNSET"), "the variable UNSET is not set: ask Ada"),
            ("${UNSET:-${GONE}}", 0..17, Some("GONE"), "the variable GONE is not set"),
            ("${A} and ${B", 9..12, None, "Malformed syntax: unclosed brace"),
            ("${A", 0..3, None, "Malformed syntax: unclosed brace"),
            ("${}", 0..3, None, "Malformed syntax: not a variable reference"),
            ("${A }", 0..5, None, "Malformed syntax: not a variable reference"),
            ("${1A}", 0..5, None, "Malformed syntax: not a variable reference"),
            ("${A:default}", 0..12, None, "Malformed syntax: not a variable reference"),
            ("${cmd:}", 0..7, None, "Malformed syntax: not a variable reference"),
            ("${keyring:a b}", 0..14, None, "Malformed syntax: not a variable reference"),
            (
                "${cmd:ls}",
                0..9,
                None,
                "${cmd:…} runs a command, which only the user's own configuration may do",
            ),
            ("${keyring:a}", 0..12, None, "secrets of the keyring are not available here"),
        ] {
            let unresolved = expand(text).unresolved;
            let reported: Vec<_> = unresolved
                .iter()
                .map(|reference| {
                    (reference.range.clone(), reference.needs.as_deref(), reference.message.as_str())
                })
                .collect();
            assert_eq!(reported, [(range, needs, message)], "{text}");
        }
    }

    #[test]
    fn a_file_in_a_client_directory_belongs_to_the_parent_directory() {
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
    fn programs_of_user_files_run_in_the_home_directory() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let environment = |name: &str| (name == "HOME").then(|| home.display().to_string());
        for (file, expected) in [
            (".config/pegboard/pegboard.yaml", FileWorkspace::Home(home.to_owned())),
            (".cursor/mcp.json", FileWorkspace::AnyProject(home.to_owned())),
            (".codex/config.toml", FileWorkspace::AnyProject(home.to_owned())),
            ("src/rocket/.cursor/mcp.json", FileWorkspace::Project(home.join("src/rocket"))),
            ("src/rocket/pegboard.yaml", FileWorkspace::Project(home.join("src/rocket"))),
        ] {
            let path = home.join(file);
            assert_eq!(
                FileWorkspace::of_file(&path, path.parent().unwrap(), &environment),
                expected,
                "{file}"
            );
        }
    }

    #[test]
    fn relative_references_become_absolute() {
        for (text, expected) in [
            ("${configDir}/a ${workspaceFolder}/b", "/src/.vscode/a /src/b"),
            ("${workspaceFolderBasename} ${A:-b} ${env:A}", "src ${A:-b} ${env:A}"),
            ("${file:key} ${file:/etc/key}", "${file:/src/.vscode/key} ${file:/etc/key}"),
            ("$${configDir} ${", "$${configDir} ${"),
        ] {
            let (folder, workspace) =
                (Path::new("/src/.vscode"), FileWorkspace::Project(PathBuf::from("/src")));
            assert_eq!(with_absolute_references(text, (folder, &workspace)), expected);
        }
    }

    #[test]
    fn expanded_values_are_secrets() {
        let origin = ExpandedOrigin::Variable("A".to_owned());
        assert_eq!(expand("Bearer ${A}").secrets, [ExpandedValue { text: "1".to_owned(), origin }]);
        assert_eq!(expand("${UNSET:-none} ${userHome}").secrets, []);
    }
}
