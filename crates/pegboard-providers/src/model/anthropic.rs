//! Messages, as Anthropic has them.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderName, HeaderValue};
use pegboard_core::model::{
    Listener, Model, ModelError, ModelFacts, ModelName, ModelProviderName, ModelReply, ModelRequest,
};
use pegboard_core::settings::model::ModelProviderSettings;

use super::accounted;
use super::site::{Answer, Connections, Events, InvalidModelProvider, KeyHeader, Site, address};
use reply::{Draft, Taken};

mod reply;
mod request;

/// The revision of the interface that is spoken.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// A model behind messages.
///
/// How hard it thinks: with a word it decides itself how much, as newer models do; with a number of tokens it has a
/// budget, which only older ones take. While it thinks it takes no temperature, and a tool cannot be forced: then it
/// replies without thinking.
///
/// ```
/// use pegboard_core::model::Model;
/// use pegboard_core::settings::mcp::Secret;
/// use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
/// use pegboard_providers::model::Anthropic;
///
/// let settings = ModelProviderSettings {
///     api_key: Some(Secret::new("the key")),
///     ..ModelProviderSettings::new(ModelProviderKind::Anthropic)
/// };
/// let model = Anthropic::new(&"claude/some-model".parse().unwrap(), &settings).unwrap();
/// assert_eq!(model.facts().name.to_string(), "claude/some-model");
/// ```
#[derive(Debug)]
pub struct Anthropic {
    site: Arc<Site>,
    facts: ModelFacts,
}

impl Anthropic {
    /// A model of a provider.
    pub fn new(name: &ModelName, settings: &ModelProviderSettings) -> Result<Self, InvalidModelProvider> {
        let site = site(name.provider(), settings, Arc::default())?;
        Ok(Self::at(Arc::new(site), settings.facts(name)))
    }

    /// A model at a site that others use too.
    pub(super) fn at(site: Arc<Site>, facts: ModelFacts) -> Self {
        Self { site, facts }
    }

    async fn ask(&self, request: &ModelRequest, listener: Listener<'_>) -> Result<ModelReply, ModelError> {
        let answer = self.site.post(&self.facts.name, request::body(&self.facts.name, request)).await?;
        let draft = Draft::new(&self.facts.name, self.site.redactor());
        let reply = if answer.is_stream() {
            streamed(answer.events(), draft, listener).await
        } else {
            whole(answer, draft, listener).await
        };
        Ok(accounted(&self.facts, reply?))
    }
}

impl Model for Anthropic {
    fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: Listener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.ask(request, listener).boxed()
    }
}

/// Where a provider takes messages.
pub(super) fn site(
    provider: &ModelProviderName,
    settings: &ModelProviderSettings,
    connections: Arc<Connections>,
) -> Result<Site, InvalidModelProvider> {
    let base = settings.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    let base = base.unwrap_or(ModelProviderSettings::ANTHROPIC_URL);
    let url = address(provider, base, |base| match base {
        base if base.ends_with("/v1/messages") => "",
        base if base.ends_with("/v1") => "/messages",
        _ => "/v1/messages",
    })?;
    let key = KeyHeader::Named(HeaderName::from_static("x-api-key"));
    let site = Site::new(provider, settings, url, key, connections)?;
    Ok(site.with_header(HeaderName::from_static("anthropic-version"), VERSION))
}

async fn whole(
    answer: Answer<'_>,
    mut draft: Draft<'_>,
    listener: Listener<'_>,
) -> Result<ModelReply, ModelError> {
    let strange =
        answer.garbage(&format!("it is no JSON of a reply (content type '{}')", answer.content_type()));
    let body = answer.body().await?;
    match draft.take_whole(&body, listener)? {
        Taken::Read => draft.finish(),
        Taken::Strange => Err(strange),
    }
}

async fn streamed(
    mut events: Events<'_>,
    mut draft: Draft<'_>,
    listener: Listener<'_>,
) -> Result<ModelReply, ModelError> {
    while let Some(event) = events.next().await? {
        if event.data.is_empty() {
            continue;
        }
        match draft.take(&event.data, listener)? {
            Taken::Read if draft.is_over() => return draft.finish(),
            Taken::Read => {}
            Taken::Strange => return Err(events.garbage("an event of it is no JSON of a reply")),
        }
    }
    Err(events.cut())
}
