//! Requests to a server other than tool calls.

use std::time::Duration;

use pegboard_core::call::CallContext;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::provider::{ProviderMethod, ProviderRequest};
use pegboard_json::RawJson;
use pegboard_wire::client::Era;
use pegboard_wire::era::LogLevel;
use tokio::time;

use super::call::{RetrySafety, ServerCall};
use super::handle::{LiveConnection, ServerHandle};
use super::listen::supports_subscriptions;

/// Time limit for the acknowledgement of a subscription. A server that sends none may still honour it.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

impl ServerHandle {
    /// Executes a request that is not a tool call.
    pub(super) async fn request(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        match &request.method {
            ProviderMethod::GetPrompt | ProviderMethod::ReadResource | ProviderMethod::Complete => {
                self.execute(&ServerCall::request(request, context, RetrySafety::Safe)).await
            }
            ProviderMethod::Subscribe => self.subscribe(request, context).await,
            ProviderMethod::Unsubscribe => self.unsubscribe(request, context).await,
            ProviderMethod::SetLogLevel => self.set_log_level(request, context).await,
            ProviderMethod::Custom(_) => {
                self.execute(&ServerCall::request(request, context, RetrySafety::Unknown)).await
            }
            ProviderMethod::CustomNotification(method) => self.forward_notification(method, request).await,
        }
    }

    /// Forwards a notification to a connected server with sessions. It starts no server, and stateless servers take
    /// no notifications.
    async fn forward_notification(
        &self,
        method: &str,
        request: &ProviderRequest,
    ) -> Result<RawJson, CallError> {
        if let Some(live) = self.connection().filter(|live| live.client().era() == Era::Session) {
            let params = (!request.params.is_empty()).then(|| request.params.clone());
            let sent = live.client().notify(method, params).await;
            sent.map_err(|error| failure(format!("the notification was not delivered: {error}")))?;
        }
        Ok(RawJson::empty_object())
    }

    async fn subscribe(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        let uri = text_param(request, "uri")?;
        self.subscriptions.check_limits(&uri)?;
        let live = self.ready().await?;
        match live.client().era() {
            Era::Session => {
                let result =
                    self.execute(&ServerCall::request(request, context, RetrySafety::Unknown)).await?;
                self.subscriptions.subscribe(&uri);
                Ok(result)
            }
            Era::Stateless if supports_subscriptions(live.client()) => {
                let version = self.subscriptions.subscribe(&uri);
                wait_until_subscribed(&live, version).await;
                Ok(RawJson::empty_object())
            }
            Era::Stateless => {
                let name = &self.settings.name;
                Err(failure(format!("MCP server '{name}' does not support resource subscriptions")))
            }
        }
    }

    async fn unsubscribe(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        self.subscriptions.unsubscribe(&text_param(request, "uri")?);
        self.forward_setting(request, context).await
    }

    async fn set_log_level(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        let level = request.params.get("level").and_then(|level| level.read::<LogLevel>().ok());
        let level = level.ok_or_else(|| failure("`level` must be a log level, such as info".to_owned()))?;
        if !self.subscriptions.set_log_level(level) {
            return Ok(RawJson::empty_object());
        }
        self.forward_setting(request, context).await
    }

    /// Forwards a setting to a connected server with sessions. A server that is not running gets it at its
    /// start, a stateless one with each request.
    async fn forward_setting(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        match self.connection() {
            Some(live) if live.client().era() == Era::Session => {
                self.execute(&ServerCall::request(request, context, RetrySafety::Unknown)).await
            }
            Some(_) | None => Ok(RawJson::empty_object()),
        }
    }
}

/// Waits until the server knows the subscriptions, at most [`SUBSCRIBE_TIMEOUT`].
async fn wait_until_subscribed(live: &LiveConnection, version: u64) {
    let subscribed = async {
        tokio::select! {
            () = live.in_flight().wait_until_subscribed(version) => {}
            _ = live.closed() => {}
        }
    };
    let _ = time::timeout(SUBSCRIBE_TIMEOUT, subscribed).await;
}

fn text_param(request: &ProviderRequest, name: &str) -> Result<String, CallError> {
    let text = request.params.get(name).and_then(|text| text.read::<String>().ok());
    text.ok_or_else(|| failure(format!("`{name}` must be a string")))
}

fn failure(problem: String) -> CallError {
    CallError::Failed(ToolError::new(problem))
}
