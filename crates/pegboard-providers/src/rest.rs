//! REST tools: each tool is an HTTP request.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::Method;
use pegboard_core::call::ValidCall;
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::fingerprint::Fingerprint;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::{LocalProvider, ServerOffering, ToolKind};
use pegboard_core::settings::rest::{self, RestTool, RetrySettings};
use reqwest::Url;
use tokio::time::{self, Duration};

use pegboard_http::{
    NetworkAccess, ResponseLimits, StreamingResponse, WebClient, WebClients, WebError, WebRequest,
};

mod body;
mod pages;
mod parameters;
mod query;
mod request;
mod stream;

use parameters::CallParameters;

/// Name of the server of REST tools.
pub const SERVER: &str = "rest";

/// Initial backoff if the service does not specify one.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// Creates a provider of REST tools. Invalid tools are skipped and added to `warnings`.
///
/// ```
/// use pegboard_config::RestEntry;
/// use pegboard_config::settings::RestToolSettings;
/// use pegboard_core::id::ToolName;
/// use pegboard_core::provider::Provider;
/// use pegboard_core::settings::ToolSettings;
///
/// let written: RestToolSettings =
///     serde_json::from_str(r#"{"description": "All things", "url": "https://api.example.org/things"}"#).unwrap();
/// let entry = written.resolve(ToolName::new("things").unwrap(), ToolSettings::default()).unwrap();
/// let RestEntry::Usable { request, .. } = entry else { panic!("it is usable") };
/// let provider = pegboard_providers::rest::provider(vec![*request], Vec::new());
/// assert_eq!(provider.offering().borrow().tools[0].annotations().read_only, Some(true));
/// ```
pub fn provider(tools: Vec<RestTool>, mut warnings: Vec<String>) -> LocalProvider {
    let mut fingerprint = Fingerprint::default();
    let mut clients = WebClients::default();
    let mut entries = Vec::new();
    for tool in tools {
        fingerprint.add(&tool.fingerprint);
        let name = tool.name.clone();
        match entry(tool, &mut clients) {
            Ok(entry) => entries.push(Arc::new(entry)),
            Err(error) => warnings.push(format!("REST tool '{name}' cannot be used: {error}")),
        }
    }
    let fingerprint = fingerprint.finish();
    let offering = ServerOffering { tools: entries, fingerprint, warnings, ..ServerOffering::default() };
    LocalProvider::from_offering(offering).of_kind(ToolKind::Rest)
}

fn entry(tool: RestTool, clients: &mut WebClients) -> Result<ToolEntry, WebError> {
    let base: Url = tool.url.origin.parse().map_err(|_| WebError::InvalidUrl)?;
    let network = if tool.allow_private_network { NetworkAccess::Private } else { NetworkAccess::ByName };
    let web = clients.get(&base, network)?;
    for (name, _) in &tool.headers {
        pegboard_http::header(name, "")?;
    }
    let (name, description) = (tool.name.as_str().to_owned(), tool.description.clone());
    let (schema, annotations) = (tool.parameters.clone(), annotations(tool.method));
    let service = Arc::new(RestHandler { tool, web });
    Ok(ToolEntry::from_handler(name, description, service)
        .with_input_schema(schema)
        .with_annotations(annotations))
}

/// Derives annotations from the HTTP method.
fn annotations(method: rest::HttpMethod) -> ToolAnnotations {
    let is_idempotent = matches!(method, rest::HttpMethod::Put | rest::HttpMethod::Delete);
    ToolAnnotations {
        read_only: Some(method.is_safe()),
        destructive: (method == rest::HttpMethod::Delete).then_some(true),
        idempotent: is_idempotent.then_some(true),
        open_world: Some(true),
    }
}

/// Handler of a REST tool.
struct RestHandler {
    tool: RestTool,
    web: Arc<WebClient>,
}

impl Handler for RestHandler {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        self.execute(call).boxed()
    }
}

impl RestHandler {
    async fn execute(&self, call: &ValidCall) -> Result<Output, CallError> {
        let parameters = CallParameters::new(call.raw_arguments(), &self.tool.parameters);
        let request = request::fill(&self.tool, &parameters)?;
        let limits = self.limits();
        let response = self.open(&request, limits).await?;
        if let Some(streaming) = self.tool.streaming.as_ref().filter(|_| response.status.is_success()) {
            return Ok(stream::read(response, streaming, call.context().client()).await?);
        }
        let response = response.read().await?;
        match self.tool.pagination {
            Some(pages) if response.status.is_success() => {
                Ok(pages::read_pages(&self.web, &request, response, limits, pages).await)
            }
            Some(_) | None => Ok(response.into_output()),
        }
    }

    fn limits(&self) -> ResponseLimits {
        let streaming = self.tool.streaming.as_ref();
        ResponseLimits {
            max_bytes: streaming.and_then(|streaming| streaming.max_bytes).unwrap_or(self.tool.max_bytes),
            start_timeout: self.tool.response_timeout,
            idle_timeout: self.tool.response_timeout,
            total_timeout: streaming
                .and_then(|streaming| streaming.timeout_ms)
                .map(Duration::from)
                .filter(|time| !time.is_zero()),
        }
    }

    /// Sends the request and waits for the response headers. Retries a busy service if configured.
    async fn open(
        &self,
        request: &WebRequest,
        limits: ResponseLimits,
    ) -> Result<StreamingResponse, WebError> {
        let mut attempt = 1;
        loop {
            let response = self.web.open(request.clone(), limits).await?;
            let Some(wait) = self.tool.retry.and_then(|retry| self.retry_delay(&retry, attempt, &response))
            else {
                return Ok(response);
            };
            drop(response);
            time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// Returns the delay before a retry; `None` if there is none.
    fn retry_delay(
        &self,
        retry: &RetrySettings,
        attempt: u32,
        response: &StreamingResponse,
    ) -> Option<Duration> {
        let is_busy = matches!(response.status.as_u16(), 429 | 503);
        let may_repeat = retry.any_method || self.tool.method.is_safe();
        if !is_busy || !may_repeat || attempt >= retry.attempts {
            return None;
        }
        let most = Duration::from(retry.max_wait);
        match pegboard_http::retry_after(response.headers()) {
            Some(wait) => Some(wait).filter(|wait| *wait <= most),
            None => Some(most.min(backoff(attempt))),
        }
    }
}

/// Returns the backoff after an attempt, numbered from 1: it doubles with each one.
fn backoff(attempt: u32) -> Duration {
    INITIAL_BACKOFF.saturating_mul(2_u32.saturating_pow(attempt - 1))
}

/// Converts the method to its HTTP type.
fn http_method(tool: &RestTool) -> Method {
    match tool.method {
        rest::HttpMethod::Get => Method::GET,
        rest::HttpMethod::Post => Method::POST,
        rest::HttpMethod::Put => Method::PUT,
        rest::HttpMethod::Patch => Method::PATCH,
        rest::HttpMethod::Delete => Method::DELETE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_and_never_overflows() {
        assert_eq!([1, 2, 3, 10].map(|attempt| backoff(attempt).as_secs()), [1, 2, 4, 512]);
        assert!(backoff(u32::MAX) >= backoff(32));
    }
}
