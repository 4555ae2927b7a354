//! Logins at a server while a call waits, for clients that show their user a URL.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use pegboard_core::call::CallContext;
use pegboard_core::client::{InputRequest, InputRequests};
use pegboard_core::id::ServerName;
use pegboard_core::owner::Owner;
use pegboard_core::settings::mcp::RemoteEndpoint;
use pegboard_json::RawJson;
use pegboard_wire::http::client::RequestAuthorizer;
use serde_json::json;

use super::instances::InstanceRouter;
use super::pool::{ServerLogins, StartedLogin};

/// Key of the question for the client.
const QUESTION: &str = "login";

/// The login at one server.
pub(super) struct ServerLogin {
    pub(super) logins: Arc<dyn ServerLogins>,
    pub(super) authorizer: Arc<dyn RequestAuthorizer>,
    pub(super) server: ServerName,
    pub(super) endpoint: RemoteEndpoint,
}

impl ServerLogin {
    pub(super) fn begin(&self) -> BoxFuture<'static, Result<StartedLogin, String>> {
        self.logins.begin_login(&self.server, &self.endpoint)
    }
}

impl fmt::Debug for ServerLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLogin").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Returns `true` if the operator made the call, with a client that can show a URL: the login is the operator's.
fn may_log_in(context: &CallContext) -> bool {
    let owner = context.tools.as_ref().and_then(|tools| tools.owner());
    let client = context.client.as_ref();
    let capabilities = client.and_then(|client| client.request_meta()?.capabilities.as_ref());
    owner.is_none_or(|owner| *owner == Owner::local())
        && capabilities.is_some_and(|capabilities| capabilities.at(&["elicitation", "url"]).is_some())
}

impl InstanceRouter {
    /// Has the user of the client log in, for this reason; returns `true` when the server can be called again. One client at a time is
    /// asked, and the login goes on if its call ends.
    pub(super) async fn log_in(&self, context: &CallContext, reason: &str) -> bool {
        if !may_log_in(context) {
            return false;
        }
        let Ok(_turn) = self.login_turn.try_lock() else { return false };
        let Some(beginning) = self.connector().begin_login() else { return false };
        let server = self.server();
        let StartedLogin { url, done } = match beginning.await {
            Ok(started) => started,
            Err(problem) => {
                tracing::warn!(%server, "No login at an MCP server can begin: {problem}");
                return false;
            }
        };
        let params = RawJson::from(json!({"mode": "url", "message": reason, "url": url}));
        let question = InputRequest { method: "elicitation/create".to_owned(), params };
        let answered =
            context.client().ask(InputRequests::from_iter([(QUESTION.to_owned(), question)])).await;
        let has_accepted = |answer: &RawJson| {
            answer.get("action").is_some_and(|action| action.text().as_deref() == Some("accept"))
        };
        if !answered.is_ok_and(|answers| answers.values().all(has_accepted)) {
            return false;
        }
        if let Err(problem) = done.await {
            tracing::warn!(%server, "The login at an MCP server failed: {problem}");
            return false;
        }
        self.restart().await.is_ok()
    }
}
