//! Files that describe a single entity: a Python server, a web service, a chain or an agent.

use std::path::Path;

use super::TranslationNotes;
use super::client_file::sanitize_name;
use super::synthetic::{as_text, entry, list, map, text};
use super::translate::{rewrite_variables, text_entry, text_list};
use super::variable_syntax::{InputDefaults, VariableSyntax};
use crate::path::KeyPath;
use crate::tree::{Node, Span};

/// Translates a Python server that `fastmcp run` starts from this file.
pub(super) fn translate_fastmcp(root: &Node, path: &Path, notes: &mut TranslationNotes) -> Node {
    let span = root.span;
    let source = root.get("source");
    let script = source.and_then(|source| source.get("path")).and_then(as_text).unwrap_or("server");
    let name = sanitize_name(&Path::new(script).file_stem().unwrap_or_default().to_string_lossy());
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let args =
        ["run".to_owned(), format!("${{configDir}}/{file}"), "--transport".to_owned(), "stdio".to_owned()];
    let mut entries = vec![
        text_entry("command", span, "fastmcp".to_owned()),
        entry("args", span, text_list(span, args)),
        text_entry("cwd", span, "${configDir}".to_owned()),
    ];
    let deployment = root.get("deployment");
    if let Some(env) = deployment.and_then(|deployment| deployment.entry("env")) {
        let mut env = env.clone();
        rewrite_variables(&mut env.value, VariableSyntax::Braces, &InputDefaults::new());
        entries.push(env);
    }
    if let Some(transport) = deployment.and_then(|deployment| deployment.entry("transport"))
        && as_text(&transport.value) != Some("stdio")
    {
        let key_path = KeyPath::default().key("deployment").key("transport");
        let message = "Pegboard starts the server itself and connects over stdio";
        notes.warn(transport.value.span, &key_path, message, None);
    }
    let server = entry(name, span, map(span, entries));
    map(span, vec![entry("mcpServers", span, map(span, vec![server]))])
}

/// Translates an OpenAPI document to a service that references it.
pub(super) fn translate_openapi(root: &Node, path: &Path) -> Node {
    let span = root.span;
    let title = root.get("info").and_then(|info| info.get("title"));
    let name = title.and_then(as_text).unwrap_or("service").to_lowercase();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let spec = map(span, vec![entry("spec", span, text(span, file))]);
    let service = entry(sanitize_name(&name), title.map_or(span, |title| title.span), spec);
    map(span, vec![entry("openapiSpecs", span, map(span, vec![service]))])
}

/// Translates a chain file. The chain is named by the file itself or by its file name.
pub(super) fn translate_chain(root: Node, path: &Path) -> Node {
    let span = root.span;
    let named = root.entry("chain").or_else(|| root.entry("name"));
    let named = named.and_then(|named| Some((as_text(&named.value)?.to_owned(), named.value.span)));
    let (name, place) = named.unwrap_or_else(|| {
        let name = sanitize_name(&path.file_stem().unwrap_or_default().to_string_lossy());
        (name, span.beside(span.start, span.start))
    });
    map(span, vec![entry("chains", span, map(span, vec![entry(name, place, root)]))])
}

/// Returns `true` if the file is an agent: by its extension, or by its header if the extension is `md`.
pub(crate) fn is_agent(path: &Path, text: &str) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let has_header = || text.starts_with("---") || text.starts_with("#!");
    ending == "ai" || (ending == "md" && has_header())
}

/// Returns the root of a configuration that references the agent file.
pub(crate) fn agent_root(path: &Path, span: Span) -> Node {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let named = list(span, vec![text(span, file)]);
    map(span, vec![entry("agents", span, named)])
}
