//! Base URL of a service: configured, or else from the document.

use pegboard_core::settings::openapi::OpenApiSettings;
use reqwest::Url;
use serde_json::Value;

use super::document_set::{DocumentLocation, DocumentNode, DocumentSet, OpenApiVersion, clip};
use pegboard_http::{has_credentials, may_be_public, origin, without_trailing_dot};

/// Base URL of an operation.
pub(super) struct BaseUrl {
    /// The URL, without trailing slash, query and fragment.
    pub(super) url: Url,
    pub(super) named_by: OriginSource,
}

/// Source of an origin that requests go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OriginSource {
    /// The configuration: by `baseUrl`, or as the origin of the document itself.
    Configuration,
    /// The document alone. It may have been written by anyone, so no credentials are sent there, and it is public.
    Document,
}

/// Returns the base URL of an operation.
pub(super) fn base_url(
    documents: &DocumentSet,
    settings: &OpenApiSettings,
    levels: [Option<DocumentNode<'_>>; 2],
) -> Result<BaseUrl, String> {
    if let Some(url) = configured_base(settings)? {
        return Ok(BaseUrl { url, named_by: OriginSource::Configuration });
    }
    let url = match documents.version {
        OpenApiVersion::V2 => v2_url(documents, levels)?,
        OpenApiVersion::V30 | OpenApiVersion::V31 => v3_url(documents, settings, levels)?,
    };
    let url = validated(url)?;
    let named_by = source_of(&url, documents, settings)?;
    if named_by == OriginSource::Document && !may_be_public(&url) {
        return Err(format!(
            "the document places the service at {}, in a private network; set baseUrl to allow it",
            origin(&url)
        ));
    }
    Ok(BaseUrl { url, named_by })
}

/// Returns the source of the origin of a URL that the document contains.
pub(super) fn source_of(
    url: &Url,
    documents: &DocumentSet,
    settings: &OpenApiSettings,
) -> Result<OriginSource, String> {
    let configured = match (configured_base(settings)?, documents.location()) {
        (Some(base), _) => Some(base.origin()),
        (None, DocumentLocation::Remote(document)) => Some(without_trailing_dot(document.clone()).origin()),
        (None, DocumentLocation::File(_)) => None,
    };
    let is_configured = configured == Some(url.origin());
    Ok(if is_configured { OriginSource::Configuration } else { OriginSource::Document })
}

fn configured_base(settings: &OpenApiSettings) -> Result<Option<Url>, String> {
    let Some(written) = &settings.base_url else { return Ok(None) };
    validated(Url::parse(written).map_err(|error| format!("invalid baseUrl: {error}"))?).map(Some)
}

fn v3_url(
    documents: &DocumentSet,
    settings: &OpenApiSettings,
    levels: [Option<DocumentNode<'_>>; 2],
) -> Result<Url, String> {
    let levels = levels.into_iter().flatten().chain([documents.root()]);
    let servers: Vec<DocumentNode<'_>> = levels
        .filter_map(|level| level.get("servers"))
        .map(|servers| servers.items().collect())
        .find(|servers: &Vec<DocumentNode<'_>>| !servers.is_empty())
        .unwrap_or_default();
    let is_meant = |server: &&DocumentNode<'_>| {
        let mentions = |word: &str| {
            settings
                .server
                .as_deref()
                .is_some_and(|meant| server.text(word).is_some_and(|text| text.contains(meant)))
        };
        mentions("url") || mentions("description")
    };
    let Some(server) = servers.iter().find(is_meant).or(servers.first()) else {
        return resolve(documents, "/");
    };
    let (mut url, mut rest) = (String::new(), server.text("url").unwrap_or("/"));
    while let Some((before, variable)) = rest.split_once('{') {
        let (name, after) = variable.split_once('}').unwrap_or((variable, ""));
        let declared = server.get("variables").and_then(|variables| variables.get(name));
        url.push_str(before);
        url.push_str(&variable_value(name, declared, settings)?);
        rest = after;
    }
    url.push_str(rest);
    resolve(documents, &url)
}

/// Returns the value of a variable: configured, or else the default of the document.
fn variable_value(
    name: &str,
    declared: Option<DocumentNode<'_>>,
    settings: &OpenApiSettings,
) -> Result<String, String> {
    let choices: Vec<&str> = declared
        .and_then(|variable| variable.get("enum"))
        .into_iter()
        .flat_map(DocumentNode::items)
        .filter_map(|choice| choice.value.as_str())
        .collect();
    match settings.server_variables.get(name) {
        Some(value) if choices.is_empty() || choices.contains(&value.as_str()) => Ok(value.clone()),
        Some(_) => {
            Err(format!("invalid serverVariables.{}: expected one of {}", clip(name), choices.join(", ")))
        }
        None => match declared.and_then(|variable| variable.value.get("default")) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => choices.first().map(|first| (*first).to_owned()).ok_or_else(|| missing(name)),
        },
    }
}

fn missing(name: &str) -> String {
    let name = clip(name);
    format!(
        "the URL of the service has a variable '{name}' without a value; set serverVariables: {{{name}: …}}"
    )
}

fn v2_url(documents: &DocumentSet, levels: [Option<DocumentNode<'_>>; 2]) -> Result<Url, String> {
    let root = documents.root();
    let path = root.text("basePath").unwrap_or("/");
    let Some(host) = root.text("host").filter(|host| !host.is_empty()) else {
        return resolve(documents, path);
    };
    let levels = levels.into_iter().flatten().chain([root]);
    let schemes =
        levels.filter_map(|level| level.get("schemes")).find(|schemes| schemes.items().next().is_some());
    let schemes: Vec<&str> = schemes
        .into_iter()
        .flat_map(DocumentNode::items)
        .filter_map(|scheme| scheme.value.as_str())
        .collect();
    let is_plain = !schemes.is_empty() && !schemes.contains(&"https");
    let document = match documents.location() {
        DocumentLocation::Remote(document) if schemes.is_empty() => Some(document.scheme()),
        DocumentLocation::Remote(_) | DocumentLocation::File(_) => None,
    };
    let scheme = document.unwrap_or(if is_plain { "http" } else { "https" });
    resolve(documents, &format!("{scheme}://{host}/{}", path.trim_start_matches('/')))
}

/// Resolves a URL that may be relative to the document.
fn resolve(documents: &DocumentSet, written: &str) -> Result<Url, String> {
    let url = match (Url::parse(written), documents.location()) {
        (Ok(url), _) => Ok(url),
        (Err(_), DocumentLocation::Remote(document)) => document.join(written),
        (Err(_), DocumentLocation::File(_)) => {
            return Err(format!(
                "the document has no absolute URL for the service ('{}'); set baseUrl",
                clip(written)
            ));
        }
    };
    url.map_err(|error| format!("invalid URL of the service: {error}; set baseUrl"))
}

fn validated(url: Url) -> Result<Url, String> {
    let mut url = without_trailing_dot(url);
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("unsupported URL scheme '{}' of the service: use http or https", url.scheme()));
    }
    if has_credentials(&url) {
        return Err(
            "the URL of the service contains a username or password; use credentials instead".to_owned()
        );
    }
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}
