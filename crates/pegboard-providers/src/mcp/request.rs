//! What a server is asked to do beside calls of its tools.

use std::time::Duration;

use pegboard_core::call::CallContext;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::provider::{Method, Request};
use pegboard_json::RawJson;
use pegboard_wire::client::Era;
use pegboard_wire::era::LogLevel;
use tokio::time;

use super::call::{Calls, Errand, Twice};
use super::life::Live;
use super::listen::may_watch;

/// How long a server may take to say that it watches a resource. One that does not say so may do it all the same.
const WATCH_TIMEOUT: Duration = Duration::from_secs(2);

impl Calls {
    /// Does something that is no call of a tool.
    pub(super) async fn request(
        &self,
        request: &Request,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        match request.method {
            Method::GetPrompt | Method::ReadResource | Method::Complete => {
                self.carry_out(&Errand::request(request, context, Twice::Harmless)).await
            }
            Method::Subscribe => self.subscribe(request, context).await,
            Method::Unsubscribe => self.unsubscribe(request, context).await,
            Method::SetLogLevel => self.set_log_level(request, context).await,
        }
    }

    async fn subscribe(&self, request: &Request, context: &CallContext) -> Result<RawJson, CallError> {
        let uri = text(request, "uri")?;
        self.0.wishes.admit(&uri)?;
        let live = self.0.ready().await?;
        match live.client().era() {
            Era::Session => {
                let result = self.carry_out(&Errand::request(request, context, Twice::Risky)).await?;
                self.0.wishes.watch(&uri);
                Ok(result)
            }
            Era::Stateless if may_watch(live.client()) => {
                let version = self.0.wishes.watch(&uri);
                hear_of(&live, version).await;
                Ok(RawJson::empty_object())
            }
            Era::Stateless => {
                let name = &self.0.settings.name;
                Err(failed(format!("MCP server '{name}' does not tell when its resources change")))
            }
        }
    }

    async fn unsubscribe(&self, request: &Request, context: &CallContext) -> Result<RawJson, CallError> {
        self.0.wishes.unwatch(&text(request, "uri")?);
        self.tell(request, context).await
    }

    async fn set_log_level(&self, request: &Request, context: &CallContext) -> Result<RawJson, CallError> {
        let level = request.params.get("level").and_then(|level| level.read::<LogLevel>().ok());
        let level = level.ok_or_else(|| failed("`level` must be a log level, such as info".to_owned()))?;
        if !self.0.wishes.lower_log_level(level) {
            return Ok(RawJson::empty_object());
        }
        self.tell(request, context).await
    }

    /// Tells a server with a session at once. One that does not run is told when it is started, and one without a
    /// session with each request.
    async fn tell(&self, request: &Request, context: &CallContext) -> Result<RawJson, CallError> {
        match self.0.live() {
            Some(live) if live.client().era() == Era::Session => {
                self.carry_out(&Errand::request(request, context, Twice::Risky)).await
            }
            Some(_) | None => Ok(RawJson::empty_object()),
        }
    }
}

/// Waits until the server knows what is wanted, but not for long.
async fn hear_of(live: &Live, version: u64) {
    let told = async {
        tokio::select! {
            () = live.traffic().told(version) => {}
            _ = live.over() => {}
        }
    };
    let _ = time::timeout(WATCH_TIMEOUT, told).await;
}

fn text(request: &Request, name: &str) -> Result<String, CallError> {
    let text = request.params.get(name).and_then(|text| text.read::<String>().ok());
    text.ok_or_else(|| failed(format!("`{name}` must be a text")))
}

fn failed(problem: String) -> CallError {
    CallError::Failed(ToolError::new(problem))
}
