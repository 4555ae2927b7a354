//! OpenAPI services among mcphub's servers.

use super::TranslationNotes;
use super::synthetic::{as_text, entry, map};
use super::translate::text_entry;
use crate::path::KeyPath;
use crate::tree::{Node, TreeEntry, Value};

/// Returns the OpenAPI service if the server is one. `node` is translated except for the keys that only
/// mcphub has.
pub(super) fn service(node: &Node, key_path: &KeyPath, notes: &mut TranslationNotes) -> Option<Node> {
    let described = node.get("openapi")?;
    let key_path = key_path.key("openapi");
    let mut entries = Vec::new();
    if let Some(url) = described.get("url") {
        entries.push(entry("spec", url.span, url.clone()));
    } else {
        let span = described.get("schema").unwrap_or(described).span;
        let help =
            Some("move it to a file and reference that under openapiSpecs in a pegboard.yaml".to_owned());
        notes.warn(span, &key_path.key("schema"), "inline documents are not supported", help);
    }
    let mut headers = node.get("headers").and_then(Node::entries).unwrap_or_default().to_vec();
    if let Some(security) = described.get("security").filter(|security| is_secured(security)) {
        if let Some(auth_header) = auth_header(security) {
            headers.push(auth_header);
        } else {
            let message = "not supported: this authentication scheme; set headers instead";
            notes.warn(security.span, &key_path.key("security"), message, None);
        }
    }
    if let Some(passed) = described.entry("passthroughHeaders") {
        let message = "not supported: forwarding headers of callers";
        notes.warn(passed.key_span, &key_path.key("passthroughHeaders"), message, None);
    }
    if !headers.is_empty() {
        entries.push(entry("headers", described.span, map(described.span, headers)));
    }
    let is_off = matches!(node.get("disabled"), Some(Node { value: Value::Bool(true), .. }));
    let is_done = |entry: &&TreeEntry| {
        let done = ["type", "url", "openapi", "headers", "disabled", "startTimeout"];
        done.contains(&entry.key.as_str()) || (is_off && entry.key == "enabled")
    };
    let rest = node.entries().unwrap_or_default().iter().filter(|entry| !is_done(entry));
    entries.extend(rest.cloned());
    if is_off {
        entries.push(entry("enabled", node.span, Node::new(node.span, Value::Bool(false))));
    }
    Some(map(node.span, entries))
}

fn is_secured(security: &Node) -> bool {
    security.get("type").and_then(as_text) != Some("none")
}

/// Returns the header that authenticates requests, if the scheme uses one.
fn auth_header(security: &Node) -> Option<TreeEntry> {
    let string = |key_path: [&str; 2]| {
        let node = key_path.iter().try_fold(security, |node, key| node.get(key))?;
        Some((as_text(node)?, node.span))
    };
    match security.get("type").and_then(as_text)? {
        "apiKey" => {
            let (name, _) = string(["apiKey", "name"])?;
            let (value, span) = string(["apiKey", "value"])?;
            let is_header = string(["apiKey", "in"])?.0 == "header";
            is_header.then(|| text_entry(name, span, value.to_owned()))
        }
        "http" => {
            let scheme = match string(["http", "scheme"])?.0 {
                "basic" => "Basic",
                "bearer" => "Bearer",
                _ => return None,
            };
            let (credentials, span) = string(["http", "credentials"])?;
            Some(text_entry("Authorization", span, format!("{scheme} {credentials}")))
        }
        kind @ ("oauth2" | "openIdConnect") => {
            let (token, span) = string([kind, "token"])?;
            Some(text_entry("Authorization", span, format!("Bearer {token}")))
        }
        _ => None,
    }
}
