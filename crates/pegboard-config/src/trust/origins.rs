//! Origins that the requests of an entry go to.

use std::collections::BTreeSet;

use pegboard_core::secret::Secret;
use pegboard_core::settings::mcp::McpTarget;
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};

use crate::configuration::{ModelProviderEntry, RestEntry, ServerEntry};

/// Origins in the settings of an entry: scheme, host and port of each URL.
#[derive(Debug, Default)]
pub(super) struct Origins(BTreeSet<String>);

impl Origins {
    /// Returns the origins of a server or service. A program and an invalid entry have none.
    pub(super) fn of_server(entry: &ServerEntry) -> Self {
        match entry {
            ServerEntry::Mcp { connection, .. } => match &connection.target {
                McpTarget::WebSocket(remote) | McpTarget::Http(remote) | McpTarget::Sse(remote) => {
                    Self::of([remote.url.as_str()])
                }
                McpTarget::Program(_) | McpTarget::Embedded => Self::default(),
            },
            ServerEntry::OpenApi { service, .. } => {
                let token_urls = service.credentials.values().filter_map(|it| it.token_url.as_ref());
                let token_urls = token_urls.map(Secret::reveal);
                Self::of(
                    [service.spec.as_str()].into_iter().chain(service.base_url.as_deref()).chain(token_urls),
                )
            }
            ServerEntry::Unusable(_) => Self::default(),
        }
    }

    /// Returns the origin of a REST tool.
    pub(super) fn of_rest(entry: &RestEntry) -> Self {
        match entry {
            RestEntry::Usable { request, .. } => Self::of([request.url.origin.as_str()]),
            RestEntry::Unusable(_) => Self::default(),
        }
    }

    /// Returns the origin of a model provider.
    pub(super) fn of_model(entry: &ModelProviderEntry) -> Self {
        match entry {
            ModelProviderEntry::Usable(settings) => match (&settings.base_url, settings.kind) {
                (Some(url), _) => Self::of([url.as_str()]),
                (None, ModelProviderKind::Anthropic) => Self::of([ModelProviderSettings::ANTHROPIC_URL]),
                (None, ModelProviderKind::OpenAiCompatible | ModelProviderKind::Sampling) => Self::default(),
            },
            ModelProviderEntry::Unusable(_) => Self::default(),
        }
    }

    /// Returns `true` if all of the other origins are among these.
    pub(super) fn include(&self, others: &Self) -> bool {
        others.0.is_subset(&self.0)
    }

    fn of<'u>(urls: impl IntoIterator<Item = &'u str>) -> Self {
        Self(urls.into_iter().filter_map(origin).collect())
    }
}

/// Returns the scheme, host and port of a URL, without a user; `None` if it is a path.
pub(crate) fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    Some(format!("{scheme}://{host}").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (url, expected) in [
            ("https://a.example/mcp", Some("https://a.example")),
            ("HTTPS://A.example?x#y", Some("https://a.example")),
            ("https://user:key@a.example:8080/", Some("https://a.example:8080")),
            ("https://a.example\\@b.example/", Some("https://a.example")),
            ("api/openapi.yaml", None),
        ] {
            assert_eq!(origin(url).as_deref(), expected, "{url}");
        }
    }
}
