//! Where the calls of each session go: to the server that all share, or to one of the session's own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use pegboard_core::attachment::{Attachments, Slot};
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

/// How many servers are kept for callers that nobody remembers, when none of them is there.
const MAX_FREE: usize = 4;

/// What carries out the calls of a server's tools, for every session in its place.
///
/// Sessions share a server unless the operator says otherwise; then each gets one of its own, which ends with the
/// session. If a server turns out to ask its callers things and cannot say whom it means, the first session keeps the
/// server that is there, and every other gets one of its own. A caller without a session then has one to itself for as
/// long as its call takes.
pub(super) struct Homes {
    /// The server that is there for everybody.
    base: Arc<Life>,
    connect: Arc<dyn Connect>,
    slot: Slot,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Whoever has the base to itself.
    tenant: Weak<Home>,
    own: Vec<Own>,
    /// Servers that the calls of callers without a session have left behind.
    free: Vec<Arc<Home>>,
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

/// What must live as long as a call does, so that it can go where it goes.
enum Stay {
    /// At the server that all share.
    Shared,
    /// At the home of the call's session.
    Session { _home: Arc<Home> },
    /// At a server that is the call's own until it ends.
    Lent { home: Option<Arc<Home>>, state: Arc<Mutex<State>> },
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Self::Lent { home, state } = self
            && let Some(home) = home.take()
            && matches!(*home, Home::Own(_))
        {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.free.len() < MAX_FREE {
                state.free.push(home);
            }
        }
    }
}

/// Where the calls of one session go.
enum Home {
    /// To the base, which this session has to itself.
    Base(Arc<Life>),
    /// To a server of its own.
    Own(Server),
}

impl Home {
    fn life(&self) -> Arc<Life> {
        match self {
            Self::Base(life) => Arc::clone(life),
            Self::Own(server) => Arc::clone(&server.life),
        }
    }
}

impl Homes {
    pub(super) fn new(base: Arc<Life>, connect: Arc<dyn Connect>) -> Self {
        Self { base, connect, slot: Slot::new(), state: Arc::default() }
    }

    /// Whose calls are to be kept apart.
    fn are_apart(&self) -> bool {
        !self.base.settings.is_shared || self.base.asks.load(Ordering::Relaxed)
    }

    /// Where a call goes; what is given with it must live as long as the call does.
    fn of(&self, context: &CallContext) -> Result<(Arc<Life>, Stay), CallError> {
        if !self.are_apart() {
            return Ok((Arc::clone(&self.base), Stay::Shared));
        }
        let home = match context.tools.as_ref().and_then(|tools| tools.attachments()) {
            Some(session) => {
                let found: Arc<Mutex<Option<Arc<Home>>>> = session.get_or_attach(&self.slot, Mutex::default);
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                match &*found {
                    Some(home) => Arc::clone(home),
                    None => Arc::clone(found.insert(self.settle(session)?)),
                }
            }
            // Nobody remembers it, so what it left behind would be found by somebody else.
            None if !self.base.settings.is_shared => self.build(&mut self.state())?,
            None => {
                let home = self.lend()?;
                return Ok((home.life(), Stay::Lent { home: Some(home), state: Arc::clone(&self.state) }));
            }
        };
        Ok((home.life(), Stay::Session { _home: home }))
    }

    /// A server for one call of a caller without a session.
    fn lend(&self) -> Result<Arc<Home>, CallError> {
        let mut state = self.state();
        // Calls that began before anybody knew that the server asks things may still be under way there.
        let is_taken = state.tenant.strong_count() > 0 || self.base.is_busy();
        if !is_taken {
            return Ok(self.let_base(&mut state));
        }
        match state.free.pop() {
            Some(home) => Ok(home),
            None => self.build(&mut state),
        }
    }

    /// A place for a session that has none: the base if it is free. Where sessions must not meet it never is, for
    /// everybody sees what the base lists, and that may come of what a session did.
    fn settle(&self, session: &Attachments) -> Result<Arc<Home>, CallError> {
        let mut state = self.state();
        // Calls of others that began before anybody knew that the server asks things may still be under way there,
        // and one whose caller has yet to come back with an answer is so for long.
        let is_taken = state.tenant.strong_count() > 0 || self.base.is_busy_for_others(session);
        if !self.base.settings.is_shared || is_taken {
            return self.build(&mut state);
        }
        Ok(self.let_base(&mut state))
    }

    fn let_base(&self, state: &mut State) -> Arc<Home> {
        let home = Arc::new(Home::Base(Arc::clone(&self.base)));
        state.tenant = Arc::downgrade(&home);
        home
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
        let has_session = context.tools.as_ref().is_some_and(|tools| tools.attachments().is_some());
        // What a caller without a session wants for longer than a call, it wants of the server that stays.
        let (life, _stay) = if request.method.outlasts_its_answer() && !has_session {
            (Arc::clone(&self.base), Stay::Shared)
        } else {
            self.of(context)?
        };
        Calls(life).request(request, context).await
    }

    /// Ends every server of a session's own, and waits for those that are about to end.
    pub(super) async fn shut_down(&self) {
        self.state().free.clear();
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
            let (life, _stay) = self.of(call.context())?;
            Calls(life).call(call).await
        }
        .boxed()
    }
}
