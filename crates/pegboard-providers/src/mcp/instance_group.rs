//! Instances of a server for the clients of one era: one that they share, and dedicated ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use pegboard_core::call::CallContext;
use pegboard_core::client::ClientSession;
use pegboard_core::error::CallError;
use pegboard_core::extensions::{ExtensionKey, Extensions};
use pegboard_core::owner::Owner;
use pegboard_wire::client::Era;
use tokio::time::{self, Instant};
use tokio_util::sync::DropGuard;

use super::SHUT_DOWN_TIMEOUT;
use super::connect::Connector;
use super::eras::wanted_era;
use super::handle::{ServerHandle, ServerPhase};
use super::listing::{FurtherInstance, LiveListing};
use super::roots::UnionMember;
use super::supervisor::ServerSupervisor;

/// Maximum number of dedicated instances per server.
const MAX_DEDICATED: usize = 100;

/// Maximum number of unused instances kept for later sessions.
const MAX_POOLED: usize = 4;

/// Time after which an unused instance is stopped, and a caller without a session is forgotten.
const UNUSED_LIMIT: Duration = Duration::from_mins(10);

/// Maximum number of remembered principals of the shared instance.
const MAX_PRINCIPALS: usize = 10_000;

/// Instances of a server for the clients of one era.
///
/// A user is a session, or a principal that calls without one. Each gets an instance with its first call and keeps
/// it: the shared one, unless the settings forbid it. Once a server has sent requests that name no call, a new user
/// has an instance to itself: the shared one if that has no other user, or else a dedicated one.
/// A dedicated instance that its session has left is used again, unless the settings forbid sharing.
pub(super) struct InstanceGroup {
    /// Era of the clients.
    pub(super) era: Era,
    pub(super) shared: Arc<Instance>,
    connector: Arc<dyn Connector>,
    /// The failure to connect has been reported.
    is_outage_reported: AtomicBool,
    session_key: ExtensionKey,
    /// The first principal that has called the shared instance without a session; others are in the table.
    first_principal: OnceLock<Owner>,
    table: Arc<Mutex<InstanceTable>>,
}

#[derive(Default)]
struct InstanceTable {
    /// Cloned by every user of the shared instance.
    shared_users: Arc<()>,
    /// Dedicated instances that have not ended.
    dedicated: Vec<Arc<ServerHandle>>,
    /// Dedicated instances without a user.
    pooled: Vec<Arc<Instance>>,
    /// Principals that call without a session; `None` if they used the shared instance before isolation was needed.
    principals: HashMap<Owner, Option<PrincipalUse>>,
}

/// The use of an instance by a principal that calls without a session.
struct PrincipalUse {
    assigned: Arc<AssignedInstance>,
    last_used: Instant,
}

/// An instance of the server.
pub(super) struct Instance {
    pub(super) handle: Arc<ServerHandle>,
    /// Stops the instance when its last user is gone; `None` for the one with the listing.
    stop_guard: Option<DropGuard>,
}

/// The instance of a user. A dedicated one is returned to the pool when the user is gone.
pub(super) struct AssignedInstance {
    instance: Arc<Instance>,
    kind: AssignmentKind,
    /// The user's part in the roots of the instance; `None` for most.
    roots: Option<Box<UnionMember>>,
}

enum AssignmentKind {
    /// The instance is shared; the token counts its users.
    Shared { _user: Arc<()> },
    /// The instance is dedicated, and ends with the user.
    Private,
    /// The instance is dedicated, and may be used by another user later.
    Reusable(Weak<Mutex<InstanceTable>>),
}

impl AssignedInstance {
    fn new(
        instance: Arc<Instance>,
        kind: AssignmentKind,
        client: impl FnOnce() -> Option<Arc<dyn ClientSession>>,
    ) -> Self {
        let roots = instance.handle.roots.as_ref().and_then(|roots| roots.add(client()?)).map(Box::new);
        Self { instance, kind, roots }
    }
}

impl Drop for AssignedInstance {
    fn drop(&mut self) {
        if let AssignmentKind::Reusable(table) = &self.kind
            && let Some(table) = table.upgrade()
        {
            let mut table = table.lock();
            if table.pooled.len() < MAX_POOLED && !self.instance.handle.stop.is_cancelled() {
                self.instance.handle.set_idle_limit(Some(UNUSED_LIMIT));
                table.pooled.push(Arc::clone(&self.instance));
            }
        }
    }
}

/// Keeps the instance of a call alive.
pub(super) enum InstanceGuard {
    /// The shared instance.
    Shared(Arc<Instance>),
    /// The instance of the user that makes the call.
    Assigned(Arc<AssignedInstance>),
}

impl InstanceGuard {
    pub(super) fn handle(&self) -> &ServerHandle {
        match self {
            Self::Shared(instance) => &instance.handle,
            Self::Assigned(assigned) => &assigned.instance.handle,
        }
    }

    /// Waits until the server knows the roots of a new user, if it gets them outside of calls.
    pub(super) async fn roots_told(&self) {
        if let Self::Assigned(assigned) = self
            && let Some(member) = &assigned.roots
        {
            member.told().await;
        }
    }
}

/// The instance of a session, once it has called the server.
type SessionInstance = Mutex<Option<Arc<AssignedInstance>>>;

impl InstanceGroup {
    /// Creates the group with the instance that provides the listing, which has a supervisor already.
    pub(super) fn new(handle: Arc<ServerHandle>, connector: Arc<dyn Connector>) -> Self {
        let shared = Arc::new(Instance { handle, stop_guard: None });
        Self::of(Era::Stateless, shared, connector)
    }

    /// Creates the group of the same server for the clients of another era. Its shared instance starts on first use
    /// and stops with the group.
    pub(super) fn for_era(&self, era: Era) -> Self {
        let handle = self.shared.handle.shared_in_era(era);
        let (shared, connector) = self.spawn_instance(handle, FurtherInstance::Shared);
        Self::of(era, shared, connector)
    }

    fn of(era: Era, shared: Arc<Instance>, connector: Arc<dyn Connector>) -> Self {
        let (session_key, first_principal) = (ExtensionKey::new(), OnceLock::new());
        let is_outage_reported = AtomicBool::new(false);
        Self {
            era,
            shared,
            connector,
            is_outage_reported,
            session_key,
            first_principal,
            table: Arc::default(),
        }
    }

    pub(super) fn connector(&self) -> &dyn Connector {
        &*self.connector
    }

    /// Records that the failure to connect is reported; returns `true` the first time.
    pub(super) fn report_outage(&self) -> bool {
        !self.is_outage_reported.swap(true, Ordering::Relaxed)
    }

    /// Returns `true` if new users must not share an instance.
    fn needs_isolation(&self) -> bool {
        !self.shared.handle.settings.is_shared || self.shared.handle.isolation.is_needed()
    }

    /// Returns the instance for a call, which must be held for as long as the call.
    pub(super) fn route(&self, context: &CallContext) -> Result<InstanceGuard, CallError> {
        let tools = context.tools.as_ref();
        let Some(session) = tools.and_then(|tools| tools.extensions()) else {
            let owner = tools.and_then(|tools| tools.owner()).cloned();
            return self.route_principal(owner, context);
        };
        let assigned: Arc<SessionInstance> =
            session.get_or_insert_with(&self.session_key, SessionInstance::default);
        let mut assigned = assigned.lock();
        if let Some(assigned) = &*assigned {
            return Ok(InstanceGuard::Assigned(Arc::clone(assigned)));
        }
        // Dropped after the lock, which it takes.
        let _forgotten;
        let mut table = self.table.lock();
        _forgotten = table.forget_unused();
        let new = self.assign(&mut table, Some(session), context)?;
        Ok(InstanceGuard::Assigned(Arc::clone(assigned.insert(new))))
    }

    /// Returns the instance of this group that the session of a call has.
    pub(super) fn assigned_to_session(&self, context: &CallContext) -> Option<Arc<AssignedInstance>> {
        let session = context.tools.as_ref()?.extensions()?;
        let assigned: Arc<SessionInstance> = session.get(&self.session_key)?;
        let assigned = assigned.lock();
        assigned.clone()
    }

    /// Returns the instance that the user of a call has, or shares with others, without assigning one.
    pub(super) fn instance_in_use(&self, context: &CallContext) -> Option<InstanceGuard> {
        match self.assigned_to_session(context) {
            Some(assigned) => Some(InstanceGuard::Assigned(assigned)),
            None => (!self.needs_isolation()).then(|| self.shared_instance()),
        }
    }

    /// Returns the shared instance.
    pub(super) fn shared_instance(&self) -> InstanceGuard {
        InstanceGuard::Shared(Arc::clone(&self.shared))
    }

    /// Returns the instance of a principal that calls without a session. An unknown one has it for one call.
    fn route_principal(
        &self,
        owner: Option<Owner>,
        context: &CallContext,
    ) -> Result<InstanceGuard, CallError> {
        if !self.needs_isolation() {
            if let Some(owner) = owner {
                self.remember_principal(owner);
            }
            return Ok(self.shared_instance());
        }
        // Dropped after the lock, which it takes.
        let _forgotten;
        let mut table = self.table.lock();
        _forgotten = table.forget_unused();
        let Some(owner) = owner else {
            return Ok(InstanceGuard::Assigned(self.assign(&mut table, None, context)?));
        };
        let mut is_known = self.first_principal.get() == Some(&owner);
        match table.principals.get_mut(&owner) {
            Some(Some(used)) => {
                used.last_used = Instant::now();
                return Ok(InstanceGuard::Assigned(Arc::clone(&used.assigned)));
            }
            Some(None) => is_known = true,
            None => {}
        }
        let assigned = if is_known && self.shared.handle.settings.is_shared {
            self.assign_shared(&table, || None)
        } else {
            self.assign(&mut table, None, context)?
        };
        let used = PrincipalUse { assigned: Arc::clone(&assigned), last_used: Instant::now() };
        table.principals.insert(owner, Some(used));
        Ok(InstanceGuard::Assigned(assigned))
    }

    /// Records that a principal uses the shared instance.
    fn remember_principal(&self, owner: Owner) {
        if *self.first_principal.get_or_init(|| owner.clone()) != owner {
            let mut table = self.table.lock();
            if table.principals.len() < MAX_PRINCIPALS {
                table.principals.entry(owner).or_default();
            }
        }
    }

    /// Returns `true` if another principal has used the shared instance without a session, and so continues on it
    /// with its next call.
    fn is_kept_for_others(&self, table: &InstanceTable, owner: Option<&Owner>) -> bool {
        let is_other = |known: &Owner| Some(known) != owner;
        self.first_principal.get().is_some_and(is_other)
            || table.principals.iter().any(|(known, used)| used.is_none() && is_other(known))
    }

    fn assign_shared(
        &self,
        table: &InstanceTable,
        client: impl FnOnce() -> Option<Arc<dyn ClientSession>>,
    ) -> Arc<AssignedInstance> {
        let kind = AssignmentKind::Shared { _user: Arc::clone(&table.shared_users) };
        Arc::new(AssignedInstance::new(Arc::clone(&self.shared), kind, client))
    }

    /// Assigns an instance to a new user. Its client is looked at only if the instance needs it, since that keeps state
    /// for as long as the session. That of an unshared server is never shared: its listing is published to
    /// all sessions and may depend on what a session did.
    fn assign(
        &self,
        table: &mut InstanceTable,
        session: Option<&Extensions>,
        context: &CallContext,
    ) -> Result<Arc<AssignedInstance>, CallError> {
        let (shared, era) = (&self.shared.handle, wanted_era(context));
        let client = || session.and_then(|_| context.client().session());
        if !shared.settings.is_shared {
            let instance = self.start_dedicated(table, shared.dedicated_to_session(era, client()))?;
            return Ok(self.assigned(instance, session, AssignmentKind::Private, || None));
        }
        let is_free = || {
            let is_busy =
                session.map_or_else(|| shared.is_busy(), |session| shared.is_busy_for_others(session));
            let owner = context.tools.as_ref().and_then(|tools| tools.owner());
            Arc::strong_count(&table.shared_users) == 1 && !is_busy && !self.is_kept_for_others(table, owner)
        };
        if !self.needs_isolation() || is_free() {
            return Ok(self.assign_shared(table, client));
        }
        shared.isolation.report_split(&shared.settings.name);
        let instance = match table.pooled.pop() {
            Some(instance) => instance,
            None => self.start_dedicated(table, shared.dedicated_to_session(era, None))?,
        };
        let kind = AssignmentKind::Reusable(Arc::downgrade(&self.table));
        Ok(self.assigned(instance, session, kind, client))
    }

    /// Assigns a dedicated instance. That of a session runs as long as the session, that of a principal while it is
    /// in use.
    fn assigned(
        &self,
        instance: Arc<Instance>,
        session: Option<&Extensions>,
        kind: AssignmentKind,
        client: impl FnOnce() -> Option<Arc<dyn ClientSession>>,
    ) -> Arc<AssignedInstance> {
        let configured = self.shared.handle.settings.idle_stop;
        let limit = if session.is_some() { configured } else { Some(configured.unwrap_or(UNUSED_LIMIT)) };
        instance.handle.set_idle_limit(limit);
        Arc::new(AssignedInstance::new(instance, kind, client))
    }

    fn start_dedicated(
        &self,
        table: &mut InstanceTable,
        handle: ServerHandle,
    ) -> Result<Arc<Instance>, CallError> {
        table.dedicated.retain(|handle| !handle.ended.is_cancelled());
        let shared = &self.shared.handle;
        if shared.stop.is_cancelled() {
            return Err(shared.unavailable_error(&ServerPhase::Stopped));
        }
        if table.dedicated.len() >= MAX_DEDICATED {
            let name = &shared.settings.name;
            let reason = format!(
                "MCP server '{name}' has reached the limit of {MAX_DEDICATED} dedicated instances: each session has one \
                 until its client ends it or it expires"
            );
            return Err(CallError::ServerUnavailable { reason });
        }
        let (instance, _) = self.spawn_instance(handle, FurtherInstance::Dedicated);
        table.dedicated.push(Arc::clone(&instance.handle));
        Ok(instance)
    }

    /// Creates an instance with its own supervisor, which ends with it.
    fn spawn_instance(
        &self,
        handle: ServerHandle,
        used: FurtherInstance,
    ) -> (Arc<Instance>, Arc<dyn Connector>) {
        let handle = Arc::new(handle);
        let connector = self.connector.dedicated().unwrap_or_else(|| Arc::clone(&self.connector));
        let listing = LiveListing::further(&handle, used);
        let supervisor = ServerSupervisor::new(Arc::clone(&handle), Arc::clone(&connector), listing);
        // The task ends when the instance is dropped or shut down.
        tokio::spawn(supervisor.run());
        let stop_guard = Some(handle.stop.clone().drop_guard());
        (Arc::new(Instance { handle, stop_guard }), connector)
    }

    /// Returns the number of running instances other than the one with the listing.
    pub(super) fn n_further(&self) -> usize {
        let table = self.table.lock();
        let own = self.shared.stop_guard.is_some().then_some(&self.shared.handle);
        table.dedicated.iter().chain(own).filter(|handle| handle.connection().is_some()).count()
    }

    /// Restarts the instances that are dedicated to sessions.
    pub(super) fn restart_dedicated(&self) {
        for handle in &self.table.lock().dedicated {
            handle.request_restart();
        }
    }

    /// Shuts down every instance that the group has started, and waits for those that are ending.
    pub(super) async fn shut_down(&self) {
        let (handles, unused) = {
            let mut table = self.table.lock();
            let own = self.shared.stop_guard.is_some().then(|| Arc::clone(&self.shared.handle));
            let handles = table.dedicated.iter().cloned().chain(own).collect::<Vec<_>>();
            (handles, (std::mem::take(&mut table.pooled), std::mem::take(&mut table.principals)))
        };
        for handle in &handles {
            handle.stop.cancel();
        }
        drop(unused);
        let ended = join_all(handles.iter().map(|handle| handle.ended.cancelled()));
        if time::timeout(SHUT_DOWN_TIMEOUT, ended).await.is_err() {
            let server = &self.shared.handle.settings.name;
            tracing::warn!(%server, "Dedicated instances of an MCP server did not shut down in time.");
        }
    }
}

impl InstanceTable {
    /// Removes principals that have not called for long. Their instances end or return to the pool when dropped.
    fn forget_unused(&mut self) -> Vec<Option<PrincipalUse>> {
        let is_unused = |used: &PrincipalUse| {
            Arc::strong_count(&used.assigned) == 1 && used.last_used.elapsed() >= UNUSED_LIMIT
        };
        let unused = self.principals.extract_if(|_, used| used.as_ref().is_some_and(is_unused));
        unused.map(|(_, used)| used).collect()
    }
}
