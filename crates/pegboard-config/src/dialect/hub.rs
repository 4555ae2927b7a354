//! Web services among the servers of mcphub.

use super::Remarks;
use super::foreign::entry_of;
use super::made::{as_text, entry, map};
use crate::path::Path as Way;
use crate::tree::{Entry, Node, Value};

/// The service that a server is, if it is one; `node` is in our words but for what only mcphub has.
pub(super) fn service(node: &Node, way: &Way, remarks: &mut Remarks) -> Option<Node> {
    let described = node.get("openapi")?;
    let way = way.key("openapi");
    let mut entries = Vec::new();
    if let Some(url) = described.get("url") {
        entries.push(entry("spec", url.span, url.clone()));
    } else {
        let span = described.get("schema").unwrap_or(described).span;
        let help = Some("put it into a file, and name that under openapiSpecs in a pegboard.yaml".to_owned());
        remarks.warn(span, &way.key("schema"), "the document cannot stand in the file itself", help);
    }
    let mut headers = node.get("headers").and_then(Node::entries).unwrap_or_default().to_vec();
    if let Some(security) = described.get("security").filter(|security| is_anything(security)) {
        if let Some(header) = header(security) {
            headers.push(header);
        } else {
            let message = "this is not carried over: give what is to be shown in headers";
            remarks.warn(security.span, &way.key("security"), message, None);
        }
    }
    if let Some(passed) = described.entry("passthroughHeaders") {
        let message = "this is not carried over: headers of callers are not passed on";
        remarks.warn(passed.key_span, &way.key("passthroughHeaders"), message, None);
    }
    if !headers.is_empty() {
        entries.push(entry("headers", described.span, map(described.span, headers)));
    }
    let is_off = matches!(node.get("disabled"), Some(Node { value: Value::Bool(true), .. }));
    let is_done = |entry: &&Entry| {
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

fn is_anything(security: &Node) -> bool {
    security.get("type").and_then(as_text) != Some("none")
}

/// What is shown to the service, if it can be shown in a header.
fn header(security: &Node) -> Option<Entry> {
    let said = |way: [&str; 2]| {
        let node = way.iter().try_fold(security, |node, key| node.get(key))?;
        Some((as_text(node)?, node.span))
    };
    match security.get("type").and_then(as_text)? {
        "apiKey" => {
            let (name, _) = said(["apiKey", "name"])?;
            let (value, span) = said(["apiKey", "value"])?;
            let is_header = said(["apiKey", "in"])?.0 == "header";
            is_header.then(|| entry_of(name, span, value.to_owned()))
        }
        "http" => {
            let scheme = match said(["http", "scheme"])?.0 {
                "basic" => "Basic",
                "bearer" => "Bearer",
                _ => return None,
            };
            let (credentials, span) = said(["http", "credentials"])?;
            Some(entry_of("Authorization", span, format!("{scheme} {credentials}")))
        }
        kind @ ("oauth2" | "openIdConnect") => {
            let (token, span) = said([kind, "token"])?;
            Some(entry_of("Authorization", span, format!("Bearer {token}")))
        }
        _ => None,
    }
}
