//! Chat completions, which nearly everybody offers: OpenAI, and with quirks Ollama, vLLM, llama.cpp, OpenRouter.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::model::{
    Listener, Model, ModelError, ModelFacts, ModelName, ModelProviderName, ModelReply, ModelRequest,
};
use pegboard_core::settings::model::ModelProviderSettings;
use tokio::time;

use super::accounted;
use super::site::{Answer, Connections, Events, InvalidModelProvider, KeyHeader, Site, address};
use reply::{Draft, Taken};
use request::Limit;

mod reply;
mod request;

/// How long the count of the tokens is waited for when the reply is there.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// A model behind chat completions.
///
/// ```
/// use pegboard_core::model::Model;
/// use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
/// use pegboard_providers::model::OpenAi;
///
/// let settings = ModelProviderSettings {
///     base_url: Some("http://127.0.0.1:11434/v1".to_owned()),
///     ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
/// };
/// let model = OpenAi::new(&"local/qwen3:8b".parse().unwrap(), &settings).unwrap();
/// assert_eq!(model.facts().name.model(), "qwen3:8b");
/// ```
#[derive(Debug)]
pub struct OpenAi {
    site: Arc<Site>,
    facts: ModelFacts,
}

impl OpenAi {
    /// A model of a provider.
    pub fn new(name: &ModelName, settings: &ModelProviderSettings) -> Result<Self, InvalidModelProvider> {
        let site = site(name.provider(), settings, Arc::default())?;
        Ok(Self::at(Arc::new(site), settings.facts(name)))
    }

    /// A model at a site that others use too.
    pub(super) fn at(site: Arc<Site>, facts: ModelFacts) -> Self {
        Self { site, facts }
    }

    /// OpenAI itself has given the limit another name, which most others do not know.
    fn limit(&self) -> Limit {
        let is_theirs = self.site.is_at("api.openai.com") || self.site.is_at("openai.azure.com");
        if is_theirs { Limit::MaxCompletionTokens } else { Limit::MaxTokens }
    }

    async fn ask(&self, request: &ModelRequest, listener: Listener<'_>) -> Result<ModelReply, ModelError> {
        let body = request::body(&self.facts.name, request, self.limit());
        let answer = self.site.post(&self.facts.name, body).await?;
        let draft = Draft::new(&self.facts.name, self.site.redactor());
        let reply = if answer.is_stream() {
            streamed(answer.events(), draft, listener).await
        } else {
            whole(answer, draft, listener).await
        };
        Ok(accounted(&self.facts, reply?))
    }
}

impl Model for OpenAi {
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

/// Where a provider takes chats.
pub(super) fn site(
    provider: &ModelProviderName,
    settings: &ModelProviderSettings,
    connections: Arc<Connections>,
) -> Result<Site, InvalidModelProvider> {
    let base = settings.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    let base = base.ok_or_else(|| InvalidModelProvider::NoUrl { provider: provider.clone() })?;
    let url =
        address(
            provider,
            base,
            |base| {
                if base.ends_with("/chat/completions") { "" } else { "/chat/completions" }
            },
        )?;
    Site::new(provider, settings, url, KeyHeader::Bearer, connections)
}

async fn whole(
    answer: Answer<'_>,
    mut draft: Draft<'_>,
    listener: Listener<'_>,
) -> Result<ModelReply, ModelError> {
    let strange =
        answer.garbage(&format!("it is no JSON of a reply (content type '{}')", answer.content_type()));
    let body = answer.body().await?;
    match draft.take(&body, listener)? {
        Taken::Read if draft.has_said() => draft.finish(),
        Taken::Read | Taken::Strange => Err(strange),
    }
}

async fn streamed(
    mut events: Events<'_>,
    mut draft: Draft<'_>,
    listener: Listener<'_>,
) -> Result<ModelReply, ModelError> {
    loop {
        let next = events.next();
        let event = if draft.is_over() {
            // The reply is there: a server that keeps the line open, or cuts it, takes nothing away from it.
            match time::timeout(COUNT_TIMEOUT, next).await {
                Ok(Ok(event)) => event,
                Ok(Err(_)) | Err(_) => None,
            }
        } else {
            next.await?
        };
        let Some(event) = event else { break };
        if event.data.is_empty() {
            continue;
        }
        if event.data.trim_ascii() == b"[DONE]" {
            if draft.has_said() {
                return draft.finish();
            }
            break;
        }
        match draft.take(&event.data, listener)? {
            Taken::Read => {}
            Taken::Strange => return Err(events.garbage("an event of it is no JSON of a reply")),
        }
    }
    if draft.is_over() { draft.finish() } else { Err(events.cut()) }
}

#[cfg(test)]
mod tests {
    use pegboard_core::settings::model::ModelProviderKind;

    use super::*;

    #[test]
    fn the_limit_has_the_name_that_the_server_knows() {
        let sent = |base_url: &str| {
            let settings = ModelProviderSettings {
                base_url: Some(base_url.to_owned()),
                ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
            };
            let model = OpenAi::new(&"p/m".parse().unwrap(), &settings).unwrap();
            let request = ModelRequest { max_output_tokens: Some(7), ..ModelRequest::default() };
            let body = request::body(&model.facts.name, &request, model.limit());
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            (body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64())
        };
        let theirs = (None, Some(7));
        let others = (Some(7), None);
        assert_eq!(sent("https://api.openai.com/v1"), theirs);
        assert_eq!(sent("https://eu.api.openai.com/v1"), theirs);
        assert_eq!(sent("https://mine.openai.azure.com/openai/v1"), theirs);
        assert_eq!(sent("http://127.0.0.1:11434/v1"), others);
        assert_eq!(sent("https://notapi.openai.com.example.org/v1"), others);
    }
}
