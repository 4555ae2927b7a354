//! Tools that are requests to web services.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::Method;
use pegboard_core::call::ValidCall;
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::{Local, Offer, ToolKind};
use pegboard_core::settings::rest::{self, RestTool, RetrySettings};
use reqwest::Url;
use sha2::{Digest, Sha256};
use tokio::time::{self, Duration};

use crate::web::{self, Incoming, Limits, Network, Outgoing, Policy, Web, WebError};

mod body;
mod pages;
mod parameters;
mod query;
mod request;
mod stream;

use parameters::Parameters;

/// The server that these tools belong to.
pub const SERVER: &str = "rest";

/// How long is waited before a service that does not say how long is asked again.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// A provider of tools that are requests to web services. One that cannot be used is left out, with a warning beside
/// those that are given.
///
/// ```
/// use pegboard_core::id::ToolName;
/// use pegboard_core::provider::Provider;
/// use pegboard_core::settings::rest::RestToolEntry;
///
/// let entry: RestToolEntry =
///     serde_json::from_str(r#"{"description": "All things", "url": "https://api.example.org/things"}"#).unwrap();
/// let (tool, _) = entry.normalise(ToolName::new("things").unwrap()).unwrap();
/// let provider = pegboard_providers::rest::provider(vec![tool], Vec::new());
/// assert_eq!(provider.offer().borrow().tools[0].annotations().read_only, Some(true));
/// ```
pub fn provider(tools: Vec<RestTool>, mut warnings: Vec<String>) -> Local {
    let mut fingerprint = Sha256::new();
    let mut webs = Webs::default();
    let mut entries = Vec::new();
    for tool in tools {
        fingerprint.update(&tool.fingerprint);
        let name = tool.name.clone();
        match entry(tool, &mut webs) {
            Ok(entry) => entries.push(Arc::new(entry)),
            Err(error) => warnings.push(format!("REST tool '{name}' cannot be used: {error}")),
        }
    }
    let fingerprint =
        fingerprint.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let offer = Offer { tools: entries, fingerprint, warnings, ..Offer::default() };
    Local::offering(offer).of_kind(ToolKind::Rest)
}

/// Ways to services, so that tools of the same service share its connections.
#[derive(Default)]
struct Webs(HashMap<(String, bool), Arc<Web>>);

impl Webs {
    fn to(&mut self, tool: &RestTool) -> Result<Arc<Web>, WebError> {
        let base: Url = tool.url.origin.parse().map_err(|_| WebError::BadAddress)?;
        let key = (base.origin().ascii_serialization(), tool.allow_private_network);
        if let Some(web) = self.0.get(&key) {
            return Ok(Arc::clone(web));
        }
        let network = if tool.allow_private_network { Network::Private } else { Network::AsNamed };
        let web = Arc::new(Web::new(Policy { network, ..Policy::new(base) })?);
        self.0.insert(key, Arc::clone(&web));
        Ok(web)
    }
}

fn entry(tool: RestTool, webs: &mut Webs) -> Result<ToolEntry, WebError> {
    let web = webs.to(&tool)?;
    for (name, _) in &tool.headers {
        web::header(name, "")?;
    }
    let (name, description) = (tool.name.as_str().to_owned(), tool.description.clone());
    let (schema, annotations) = (tool.parameters.clone(), annotations(tool.method));
    let service = Arc::new(Service { tool, web });
    Ok(ToolEntry::from_handler(name, description, service)
        .with_input_schema(schema)
        .with_annotations(annotations))
}

/// What a method says of the effects of a request.
fn annotations(method: rest::Method) -> Annotations {
    let is_idempotent = matches!(method, rest::Method::Put | rest::Method::Delete);
    Annotations {
        read_only: Some(method.is_safe()),
        destructive: (method == rest::Method::Delete).then_some(true),
        idempotent: is_idempotent.then_some(true),
        open_world: Some(true),
    }
}

/// One request to a service, made anew for each call.
struct Service {
    tool: RestTool,
    web: Arc<Web>,
}

impl Handler for Service {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        self.carry_out(call).boxed()
    }
}

impl Service {
    async fn carry_out(&self, call: &ValidCall) -> Result<Output, CallError> {
        let parameters = Parameters::new(call.raw_arguments(), &self.tool.parameters);
        let outgoing = request::fill(&self.tool, &parameters)?;
        let limits = self.limits();
        let incoming = self.open(&outgoing, limits).await?;
        if let Some(streaming) = self.tool.streaming.as_ref().filter(|_| incoming.status.is_success()) {
            return Ok(stream::read(incoming, streaming, call.context().client()).await?);
        }
        let answer = incoming.read().await?;
        match self.tool.pagination {
            Some(pages) if answer.status.is_success() => {
                Ok(pages::read_on(&self.web, &outgoing, answer, limits, pages).await)
            }
            Some(_) | None => Ok(answer.into_output()),
        }
    }

    fn limits(&self) -> Limits {
        let streaming = self.tool.streaming.as_ref();
        Limits {
            max_bytes: streaming.and_then(|streaming| streaming.max_bytes).unwrap_or(self.tool.max_bytes),
            begin: self.tool.patience,
            idle: self.tool.patience,
            total: streaming
                .and_then(|streaming| streaming.timeout_ms)
                .map(Duration::from)
                .filter(|time| !time.is_zero()),
        }
    }

    /// The answer when it begins. A service that is busy is asked again, as far as that is wanted.
    async fn open(&self, outgoing: &Outgoing, limits: Limits) -> Result<Incoming, WebError> {
        let mut attempt = 1;
        loop {
            let incoming = self.web.open(outgoing.clone(), limits).await?;
            let Some(wait) = self.tool.retry.and_then(|retry| self.wait_before(&retry, attempt, &incoming))
            else {
                return Ok(incoming);
            };
            drop(incoming);
            time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// How long to wait before the service is asked again; `None` if it is not.
    fn wait_before(&self, retry: &RetrySettings, attempt: u32, incoming: &Incoming) -> Option<Duration> {
        let is_busy = matches!(incoming.status.as_u16(), 429 | 503);
        let may_repeat = retry.any_method || self.tool.method.is_safe();
        if !is_busy || !may_repeat || attempt >= retry.attempts {
            return None;
        }
        let most = Duration::from(retry.max_wait);
        match web::retry_after(incoming.headers()) {
            Some(wait) => Some(wait).filter(|wait| *wait <= most),
            None => Some(most.min(FIRST_WAIT * 2_u32.pow(attempt - 1))),
        }
    }
}

/// The method as the network knows it.
fn method_of(tool: &RestTool) -> Method {
    match tool.method {
        rest::Method::Get => Method::GET,
        rest::Method::Post => Method::POST,
        rest::Method::Put => Method::PUT,
        rest::Method::Patch => Method::PATCH,
        rest::Method::Delete => Method::DELETE,
    }
}
