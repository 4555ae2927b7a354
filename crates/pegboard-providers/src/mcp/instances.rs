//! Routing of calls to the instances of a server, by the era of the client that a call is made for.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::call::{CallContext, ValidCall};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::ServerName;
use pegboard_core::output::Output;
use pegboard_core::provider::{ProviderMethod, ProviderRequest};
use pegboard_json::RawJson;
use pegboard_wire::client::Era;

use super::call::ServerCall;
use super::connect::Connector;
use super::eras::{EraNegotiation, wanted_era};
use super::handle::{CloseReason, LiveConnection, ServerHandle};
use super::instance_group::InstanceGroup;

/// Maximum number of changes of the connection while an instance is chosen.
const MAX_ERA_CHANGES: usize = 3;

/// Handler of the tools of a server, which routes every call to an instance.
///
/// The clients of both eras use the same instances as long as one era is in use, or the server has only one. A
/// server that was connected to in the stateless era, to be listed, is started again for the first client with a
/// session. Once clients of both eras use a server that has both, each era has its own connection: over HTTP to the
/// same URL, otherwise to a process of its own.
pub(super) struct InstanceRouter {
    /// Instances with the connection that provides the listing.
    primary: InstanceGroup,
    /// Instances in the era that the primary connection does not have, once needed.
    other: Mutex<Option<Arc<InstanceGroup>>>,
    /// Calls without a session have used the primary connection.
    has_stateless_users: AtomicBool,
    /// Held while a client is asked to log in.
    pub(super) login_turn: tokio::sync::Mutex<()>,
}

/// Instances that a call may use.
enum GroupRef<'r> {
    Primary(&'r InstanceGroup),
    Other(Arc<InstanceGroup>),
}

impl Deref for GroupRef<'_> {
    type Target = InstanceGroup;

    fn deref(&self) -> &InstanceGroup {
        match self {
            Self::Primary(group) => group,
            Self::Other(group) => group,
        }
    }
}

impl InstanceRouter {
    pub(super) fn new(handle: Arc<ServerHandle>, connector: Arc<dyn Connector>) -> Self {
        Self {
            primary: InstanceGroup::new(handle, connector),
            other: Mutex::default(),
            has_stateless_users: AtomicBool::new(false),
            login_turn: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn connector(&self) -> &dyn Connector {
        self.primary.connector()
    }

    pub(super) fn server(&self) -> &ServerName {
        &self.primary_handle().settings.name
    }

    /// Executes a tool call on the instance of its user.
    async fn execute(&self, call: &ValidCall) -> Result<Output, CallError> {
        let guard = self.group(call.context()).await?.route(call.context())?;
        guard.roots_told().await;
        let handle = guard.handle();
        let result = handle.execute(&ServerCall::call(call)).await?;
        Output::from_server(result).map_err(|problem| handle.invalid_result(problem))
    }

    fn primary_handle(&self) -> &ServerHandle {
        &self.primary.shared.handle
    }

    /// Returns the instances for a call.
    async fn group(&self, context: &CallContext) -> Result<GroupRef<'_>, CallError> {
        let wanted = wanted_era(context);
        match self.known_group_of(wanted, context) {
            Some(group) => Ok(group),
            // Boxed, so that the future of every other call stays small.
            None => Box::pin(self.find_group(wanted, context)).await,
        }
    }

    /// Returns the instances for a call, if they are known.
    fn known_group_of(&self, wanted: Era, context: &CallContext) -> Option<GroupRef<'_>> {
        match self.known_group(wanted) {
            // A session that began on the primary connection, because no other could be made then, stays there.
            Some(GroupRef::Other(_)) if self.primary.assigned_to_session(context).is_some() => {
                Some(GroupRef::Primary(&self.primary))
            }
            group => group,
        }
    }

    /// Returns the instances for clients of an era, if they are known.
    fn known_group(&self, wanted: Era) -> Option<GroupRef<'_>> {
        if wanted == Era::Stateless && !self.has_stateless_users.load(Ordering::Relaxed) {
            self.has_stateless_users.store(true, Ordering::Relaxed);
        }
        let primary = self.primary_handle();
        // Dedicated instances of an unshared server each have the era of their client.
        if primary.eras.is_for(wanted) || !primary.settings.is_shared {
            return Some(GroupRef::Primary(&self.primary));
        }
        let other = self.other.lock();
        let other = other.as_ref().filter(|group| group.shared.handle.eras.known() == Some(wanted));
        other.map(|group| GroupRef::Other(Arc::clone(group)))
    }

    /// Finds the instances for clients of an era, and makes a connection in this era if there is none.
    async fn find_group(&self, wanted: Era, context: &CallContext) -> Result<GroupRef<'_>, CallError> {
        let primary = self.primary_handle();
        for _ in 0..MAX_ERA_CHANGES {
            let live = primary.until_overdue(context, primary.ready()).await?;
            if let Some(group) = self.known_group(wanted) {
                return Ok(group);
            }
            let is_replaced = primary.eras.known().is_none();
            if is_replaced || (wanted == Era::Session && self.restart_with_sessions(&live)) {
                primary.until_overdue(context, primary.next_connection(&live)).await?;
                continue;
            }
            return Ok(match self.start_other(wanted, context).await? {
                Some(group) => GroupRef::Other(group),
                None => GroupRef::Primary(&self.primary),
            });
        }
        Ok(GroupRef::Primary(&self.primary))
    }

    /// Starts the server again in the session era if its stateless connection is not in use; returns `true` if
    /// another connection follows.
    fn restart_with_sessions(&self, live: &LiveConnection) -> bool {
        let is_used = self.has_stateless_users.load(Ordering::Relaxed) || self.other.lock().is_some();
        if is_used || !live.in_flight().close_if_idle() {
            return false;
        }
        let eras = &self.primary_handle().eras;
        eras.prefer_session();
        eras.forget();
        live.request_close(CloseReason::SessionEraWanted);
        true
    }

    /// Starts the connection in the other era. Without one, all clients use the primary connection: for good if the
    /// server does not have the era, and otherwise until its supervisor, which tries again, has made the connection.
    async fn start_other(
        &self,
        wanted: Era,
        context: &CallContext,
    ) -> Result<Option<Arc<InstanceGroup>>, CallError> {
        let group = {
            let mut other = self.other.lock();
            let current = other.take().filter(|group| group.era == wanted);
            Arc::clone(other.insert(current.unwrap_or_else(|| Arc::new(self.primary.for_era(wanted)))))
        };
        let handle = &group.shared.handle;
        match handle.until_overdue(context, handle.ready()).await {
            Ok(live) if live.client().era() == wanted => Ok(Some(group)),
            Ok(live) => {
                self.primary_handle().eras.set_lacks_other(EraNegotiation::of(live.client()));
                self.other.lock().take_if(|other| Arc::ptr_eq(other, &group));
                Ok(None)
            }
            Err(error) if context.tools.as_ref().is_some_and(|tools| tools.is_overdue()) => Err(error),
            Err(problem) => {
                if group.report_outage() {
                    let server = &handle.settings.name;
                    tracing::warn!(
                        %server,
                        "Clients of both eras share one connection to an MCP server until the other can be made: {problem}"
                    );
                }
                Ok(None)
            }
        }
    }

    /// Executes a request that is not a tool call, on the instance of its session.
    pub(super) async fn request(
        &self,
        request: &ProviderRequest,
        context: &CallContext,
    ) -> Result<RawJson, CallError> {
        let has_session = context.tools.as_ref().is_some_and(|tools| tools.extensions().is_some());
        let guard = match request.method {
            // The level is for all clients with sessions, on every connection. A connection that is made later
            // has it from the start.
            ProviderMethod::SetLogLevel if !has_session => {
                let other = self.other.lock().clone();
                if let Some(other) = other {
                    other.shared.handle.request(request, context).await?;
                }
                self.primary.shared_instance()
            }
            // A setting from a caller without a session applies to the instance of its era that stays.
            ProviderMethod::Subscribe if !has_session => self.group(context).await?.shared_instance(),
            // It starts no server.
            ProviderMethod::Unsubscribe if !has_session => {
                let group = self.known_group(wanted_era(context));
                group.unwrap_or(GroupRef::Primary(&self.primary)).shared_instance()
            }
            // It starts no server, and a client that only notifies takes no instance.
            ProviderMethod::CustomNotification(_) => {
                let group = self.known_group_of(wanted_era(context), context);
                match group.and_then(|group| group.instance_in_use(context)) {
                    Some(instance) => instance,
                    None => return Ok(RawJson::empty_object()),
                }
            }
            _ => self.group(context).await?.route(context)?,
        };
        guard.handle().request(request, context).await
    }

    /// Returns the number of running instances other than the one with the listing.
    pub(super) fn n_further(&self) -> usize {
        self.primary.n_further() + self.other.lock().as_ref().map_or(0, |other| other.n_further())
    }

    /// Restarts all instances that run; completes when the primary one is ready or has failed.
    pub(super) async fn restart(&self) -> Result<(), CallError> {
        let other = self.other.lock().clone();
        if let Some(other) = other {
            other.shared.handle.request_restart();
            other.restart_dedicated();
        }
        self.primary.restart_dedicated();
        self.primary_handle().restart().await
    }

    /// Shuts down every instance but the one with the listing, and waits for those that are ending.
    pub(super) async fn shut_down(&self) {
        let other = self.other.lock().take();
        let other_ended = async {
            if let Some(other) = &other {
                other.shut_down().await;
            }
        };
        tokio::join!(self.primary.shut_down(), other_ended);
    }
}

impl Handler for InstanceRouter {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            match self.execute(call).await {
                // Nothing has run. Boxed like all that few calls need, so that the future of every other call stays small.
                Err(CallError::AuthRequired { reason }) => {
                    if Box::pin(self.log_in(call.context(), &reason)).await {
                        return Box::pin(self.execute(call)).await;
                    }
                    Err(CallError::AuthRequired { reason })
                }
                done => done,
            }
        }
        .boxed()
    }
}
