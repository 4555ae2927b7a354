//! Where the calls of each session go: to the server that all share, or to one of the session's own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use pegboard_core::attachment::Slot;
use pegboard_core::call::{CallContext, ValidCall};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::Request;
use pegboard_json::RawJson;
use tokio::time;

use super::call::Calls;
use super::connect::Connect;
use super::life::Life;
use super::{SHUT_DOWN_TIMEOUT, Server};

/// How many servers of their own the sessions of one server may have at once.
const MAX_OWN: usize = 100;

/// What carries out the calls of a server's tools, for every session in its place.
///
/// Sessions share a server unless the operator says otherwise; then each gets one of its own, which ends with the
/// session. If a server turns out to ask its callers things and cannot say whom it means, the first session keeps the
/// server that is there, and every other gets one of its own.
pub(super) struct Homes {
    /// The server that is there for everybody.
    base: Arc<Life>,
    connect: Arc<dyn Connect>,
    slot: Slot,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The session that has the base to itself.
    tenant: Weak<Home>,
    own: Vec<Own>,
}

/// A server of a session's own, until it has ended.
struct Own {
    home: Weak<Home>,
    life: Arc<Life>,
}

impl Own {
    /// Whether nobody uses it any more and nothing of it is left.
    fn is_over(&self) -> bool {
        self.home.strong_count() == 0 && self.life.ended.is_cancelled()
    }
}

/// Where the calls of one session go.
pub(super) enum Home {
    /// To the base, which this session has to itself.
    Base(Arc<Life>),
    /// To a server of its own.
    Own(Server),
}

impl Homes {
    pub(super) fn new(base: Arc<Life>, connect: Arc<dyn Connect>) -> Self {
        Self { base, connect, slot: Slot::new(), state: Mutex::default() }
    }

    /// Whose calls are to be kept apart.
    fn are_apart(&self) -> bool {
        !self.base.settings.is_shared || self.base.asks.load(Ordering::Relaxed)
    }

    /// Where a call goes; what is given with it must live as long as the call does.
    pub(super) fn of(&self, context: &CallContext) -> Result<(Arc<Life>, Option<Arc<Home>>), CallError> {
        if !self.are_apart() {
            return Ok((Arc::clone(&self.base), None));
        }
        let home = match context.tools.as_ref().and_then(|tools| tools.attachments()) {
            Some(session) => {
                let found: Arc<Mutex<Option<Arc<Home>>>> = session.get_or_attach(self.slot, Mutex::default);
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                match &*found {
                    Some(home) => Arc::clone(home),
                    None => Arc::clone(found.insert(self.settle()?)),
                }
            }
            // Nobody remembers it, so what it left behind would be found by somebody else.
            None if !self.base.settings.is_shared => self.build(&mut self.state())?,
            None => return Ok((Arc::clone(&self.base), None)),
        };
        let life = match &*home {
            Home::Base(life) => Arc::clone(life),
            Home::Own(server) => Arc::clone(&server.life),
        };
        Ok((life, Some(home)))
    }

    /// A place for a session that has none: the base if it is free. Where sessions must not meet it never is, for
    /// everybody sees what the base lists, and that may come of what a session did.
    fn settle(&self) -> Result<Arc<Home>, CallError> {
        let mut state = self.state();
        if !self.base.settings.is_shared || state.tenant.strong_count() > 0 {
            return self.build(&mut state);
        }
        let home = Arc::new(Home::Base(Arc::clone(&self.base)));
        state.tenant = Arc::downgrade(&home);
        Ok(home)
    }

    fn build(&self, state: &mut State) -> Result<Arc<Home>, CallError> {
        state.own.retain(|own| !own.is_over());
        let name = &self.base.settings.name;
        if state.own.len() >= MAX_OWN || self.base.stop.is_cancelled() {
            let reason = format!(
                "MCP server '{name}' cannot be started for one more session: {MAX_OWN} have their own"
            );
            return Err(CallError::ServerUnavailable { reason });
        }
        let server = Server::alone(&self.base, Arc::clone(&self.connect));
        // One that nobody keeps would never end.
        server.wake();
        let life = Arc::clone(&server.life);
        let home = Arc::new(Home::Own(server));
        state.own.push(Own { home: Arc::downgrade(&home), life });
        Ok(home)
    }

    /// Does something that is no call of a tool, where the calls of the same session go.
    pub(super) async fn request(
        &self,
        request: &Request,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        let (life, _home) = self.of(context)?;
        Calls(life).request(request, context).await
    }

    /// Ends every server of a session's own, and waits for those that are about to end.
    pub(super) async fn shut_down(&self) {
        let lives: Vec<Arc<Life>> = self.state().own.iter().map(|own| Arc::clone(&own.life)).collect();
        for life in &lives {
            life.stop.cancel();
        }
        let ended = join_all(lives.iter().map(|life| life.ended.cancelled()));
        if time::timeout(SHUT_DOWN_TIMEOUT, ended).await.is_err() {
            let server = &self.base.settings.name;
            tracing::warn!(%server, "MCP servers of sessions did not end in time");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Homes {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let (life, _home) = self.of(call.context())?;
            Calls(life).call(call).await
        }
        .boxed()
    }
}
