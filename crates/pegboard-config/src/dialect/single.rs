//! Files that are about one thing alone: a server in Python, a web service, a chain, or an agent.

use std::path::Path;

use super::Remarks;
use super::file::plain_name;
use super::foreign::{entry_of, rewrite, words_of};
use super::made::{as_text, entry, list, map, text};
use super::syntax::{Answers, Syntax};
use crate::path::Path as Way;
use crate::tree::{Node, Span};

/// A server in Python that `fastmcp run` starts by this very file.
pub(super) fn translate_fastmcp(root: &Node, path: &Path, remarks: &mut Remarks) -> Node {
    let span = root.span;
    let source = root.get("source");
    let script = source.and_then(|source| source.get("path")).and_then(as_text).unwrap_or("server");
    let name = plain_name(&Path::new(script).file_stem().unwrap_or_default().to_string_lossy());
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let args =
        ["run".to_owned(), format!("${{configDir}}/{file}"), "--transport".to_owned(), "stdio".to_owned()];
    let mut entries = vec![
        entry_of("command", span, "fastmcp".to_owned()),
        entry("args", span, words_of(span, args)),
        entry_of("cwd", span, "${configDir}".to_owned()),
    ];
    let deployment = root.get("deployment");
    if let Some(env) = deployment.and_then(|deployment| deployment.entry("env")) {
        let mut env = env.clone();
        rewrite(&mut env.value, Syntax::Braces, &Answers::new());
        entries.push(env);
    }
    if let Some(transport) = deployment.and_then(|deployment| deployment.entry("transport"))
        && as_text(&transport.value) != Some("stdio")
    {
        let way = Way::default().key("deployment").key("transport");
        let message = "the server is started here, and spoken to over its input and output";
        remarks.warn(transport.value.span, &way, message, None);
    }
    let server = entry(name, span, map(span, entries));
    map(span, vec![entry("mcpServers", span, map(span, vec![server]))])
}

/// A web service that this very file describes.
pub(super) fn translate_openapi(root: &Node, path: &Path) -> Node {
    let span = root.span;
    let title = root.get("info").and_then(|info| info.get("title"));
    let name = title.and_then(as_text).unwrap_or("service").to_lowercase();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let spec = map(span, vec![entry("spec", span, text(span, file))]);
    let service = entry(plain_name(&name), title.map_or(span, |title| title.span), spec);
    map(span, vec![entry("openapiSpecs", span, map(span, vec![service]))])
}

/// A chain under its name, or under that of its file.
pub(super) fn translate_chain(root: Node, path: &Path) -> Node {
    let span = root.span;
    let named = root.entry("chain").or_else(|| root.entry("name"));
    let named = named.and_then(|named| Some((as_text(&named.value)?.to_owned(), named.value.span)));
    let (name, place) = named.unwrap_or_else(|| {
        let name = plain_name(&path.file_stem().unwrap_or_default().to_string_lossy());
        (name, span.beside(span.start, span.start))
    });
    map(span, vec![entry("chains", span, map(span, vec![entry(name, place, root)]))])
}

/// Whether a file is an agent: by its ending, or by its header where others end like that, too.
pub(crate) fn is_agent(path: &Path, text: &str) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let has_header = || text.starts_with("---") || text.starts_with("#!");
    ending == "ai" || (ending == "md" && has_header())
}

/// A file with an agent as one of ours that names it.
pub(crate) fn agent(path: &Path, span: Span) -> Node {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let named = list(span, vec![text(span, file)]);
    map(span, vec![entry("agents", span, named)])
}
