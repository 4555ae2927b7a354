//! Named sessions, and the workspace that each is bound to.
//!
//! A caller names its session in `context.sessionId`: by an id that it was given, or by a handle of its own
//! choice, which is scoped to that caller. A caller that names none uses the session of its connection. A
//! session expires when it is idle, and no caller can reach the session of another.

mod caller_context;
mod id;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use pegboard_core::call::WorkspaceSource;
use pegboard_core::owner::Owner;
use pegboard_core::store::{SessionHandle, SessionRecord, SessionStore, StoreError};
use serde_json::Value;

use self::caller_context::workspace_in;
pub use self::caller_context::{CallPurpose, CallerContext, DEFAULT_WORKSPACE, Workspace, runtime_keys};
pub(crate) use self::caller_context::{non_blank_text, without_context};
pub use self::id::SessionId;
use crate::store_timeout::with_timeout;

/// Maximum length of a session handle, in characters.
const MAX_HANDLE: usize = 128;
/// Name of a session without a handle.
const DEFAULT_NAME: &str = "Default Session";
/// Workspace of a handle that was given without one. No workspace has this id.
const ANY_WORKSPACE: &str = "";
/// Maximum interval between two writes of a session's last use.
const TOUCH_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum idle time; anything longer is indistinguishable from forever.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_hours(100 * 365 * 24);
/// Maximum number of ids tried for a session that begins in the same second as others.
const MAX_ID_ATTEMPTS: usize = 32;
/// Maximum number of retries after losing a race.
const MAX_RETRIES: usize = 2;

/// Settings of named sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Idle time after which a session expires.
    pub idle_timeout: Duration,
    /// Timeout of store operations; the call continues without the store.
    pub store_timeout: Duration,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { idle_timeout: Duration::from_hours(24), store_timeout: Duration::from_secs(5) }
    }
}

/// Error of entering a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The name is too long.
    #[error(
        "context.sessionId has {n_characters} characters; give at most {MAX_HANDLE}, or leave it out to get a session"
    )]
    TooLong {
        /// Length in characters.
        n_characters: usize,
    },
    /// The name contains control characters.
    #[error("context.sessionId has a control character at position {position}; give plain text in one line")]
    Control {
        /// Position of the character, from 1.
        position: usize,
    },
}

/// A session entered by a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnteredSession {
    /// Session id.
    pub id: SessionId,
    /// Human-readable name.
    pub name: String,
    /// `true` if the session was just created.
    pub is_new: bool,
    /// The name given by the caller, if it is not the id.
    pub requested_name: Option<String>,
    /// Workspace of the call.
    pub workspace: Workspace,
    /// One line of advice for the caller, if any.
    pub notice: Option<String>,
    /// Warning if the session could not be looked up or stored; the call continues.
    pub warning: Option<String>,
    /// The stored record; `None` if it could not be looked up.
    stored: Option<SessionRecord>,
}

/// Outcome of a call, for binding its session to a workspace.
#[derive(Clone, Copy, Debug)]
pub enum BindOutcome<'a> {
    /// The call succeeded, with or without a structured result.
    Succeeded(Option<&'a Value>),
    /// The call failed.
    Failed,
}

/// The named sessions.
///
/// ```
/// use pegboard_core::owner::Owner;
/// use pegboard_core::store::SessionStore;
/// use pegboard_runtime::sessions::{CallerContext, SessionError, SessionSettings, SessionRegistry};
/// use std::{sync::Arc, time::SystemTime};
///
/// async fn first_call(store: Arc<dyn SessionStore>) -> Result<(), SessionError> {
///     let sessions = SessionRegistry::new(store, SessionSettings::default());
///     let context = CallerContext { session: Some("budget work"), ..CallerContext::default() };
///     let entered = sessions.enter(&context, &Owner::new("ann"), None, SystemTime::now()).await?;
///     assert_eq!(entered.name, "budget work");
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct SessionRegistry {
    store: Arc<dyn SessionStore>,
    settings: SessionSettings,
}

impl SessionRegistry {
    /// Creates the registry on top of a store.
    pub fn new(store: Arc<dyn SessionStore>, settings: SessionSettings) -> Self {
        Self {
            store,
            settings: SessionSettings {
                idle_timeout: settings.idle_timeout.min(MAX_IDLE_TIMEOUT),
                ..settings
            },
        }
    }

    /// Returns the session of a call, creating it if necessary.
    ///
    /// `connection` is the session previously assigned to the caller's connection. A store failure costs the
    /// lookup, not the call: the given name is then trusted, with a warning. Data kept by session is kept by
    /// owner as well.
    pub async fn enter(
        &self,
        context: &CallerContext<'_>,
        owner: &Owner,
        connection: Option<&SessionId>,
        now: SystemTime,
    ) -> Result<EnteredSession, SessionError> {
        let lookup =
            SessionLookup { context, named: SessionRef::of(context.session, connection)?, owner, now };
        let found = with_timeout(self.settings.store_timeout, self.find(&lookup)).await;
        Ok(match found {
            Ok(found) => {
                let touched = with_timeout(self.settings.store_timeout, self.touch(&found.record, now)).await;
                lookup.entered(found, touched.err().as_ref())
            }
            Err(error) => lookup.unverified(&error),
        })
    }

    /// Binds a session to the workspace that a successful call named or returned, for subsequent calls.
    ///
    /// A `workspaceContext` in the result takes precedence over the one of the call. Returns the workspace if
    /// it changed. A session that could not be looked up is not bound.
    pub async fn bind(
        &self,
        entered: &EnteredSession,
        end: BindOutcome<'_>,
        now: SystemTime,
    ) -> Result<Option<String>, StoreError> {
        let BindOutcome::Succeeded(result) = end else { return Ok(None) };
        let given = result.and_then(Value::as_object).and_then(workspace_in);
        let named = entered.workspace.source.is_explicit().then_some(entered.workspace.id.as_str());
        let (Some(workspace), Some(stored)) = (given.as_deref().or(named), &entered.stored) else {
            return Ok(None);
        };
        if stored.workspace.as_deref() == Some(workspace) {
            return Ok(None);
        }
        with_timeout(self.settings.store_timeout, self.rebind(stored, workspace, now)).await
    }

    async fn rebind(
        &self,
        stored: &SessionRecord,
        workspace: &str,
        now: SystemTime,
    ) -> Result<Option<String>, StoreError> {
        let found = self.store.get(stored.owner.clone(), stored.id.clone(), now).await?;
        let Some(mut record) = found.filter(|record| record.workspace.as_deref() != Some(workspace)) else {
            return Ok(None);
        };
        record.workspace = Some(workspace.to_owned());
        self.store.put(record, now).await?;
        Ok(Some(workspace.to_owned()))
    }

    async fn find(&self, lookup: &SessionLookup<'_>) -> Result<FoundSession, StoreError> {
        match &lookup.named {
            SessionRef::Unnamed => self.create(lookup, DEFAULT_NAME).await,
            SessionRef::Connection(id) => self.find_or_create(lookup, id, DEFAULT_NAME).await,
            SessionRef::Id(id) => self.find_or_create(lookup, id, &format!("Session {id}")).await,
            SessionRef::Handle(handle) => self.find_by_handle(lookup, handle).await,
        }
    }

    /// Returns the session with this id, creating it if necessary.
    async fn find_or_create(
        &self,
        lookup: &SessionLookup<'_>,
        id: &SessionId,
        name: &str,
    ) -> Result<FoundSession, StoreError> {
        for _ in 0..=MAX_RETRIES {
            let record = self.store.get(lookup.owner.clone(), id.to_string(), lookup.now).await?;
            if let Some(record) = record {
                return Ok(FoundSession { id: id.clone(), record, is_new: false });
            }
            // A concurrent call may create it first.
            if let Some(created) = self.try_create(lookup, id.clone(), name).await? {
                return Ok(created);
            }
        }
        Err(StoreError::Failed { reason: format!("session {id} exists and cannot be read") })
    }

    /// Returns the session of a handle, creating and binding it if necessary.
    async fn find_by_handle(
        &self,
        lookup: &SessionLookup<'_>,
        name: &str,
    ) -> Result<FoundSession, StoreError> {
        let now = lookup.now;
        let explicit = lookup.explicit_workspace();
        let handle = lookup.handle(explicit.unwrap_or(ANY_WORKSPACE), name);
        if let Some(found) = self.store.find(handle.clone(), now).await?.and_then(FoundSession::known) {
            return Ok(found);
        }
        let created = self.create(lookup, name).await?;
        for _ in 0..MAX_RETRIES {
            let bound = self.store.bind(handle.clone(), created.id.to_string(), now).await?;
            if bound == created.id.as_str() {
                break;
            }
            // A concurrent call bound the same handle first.
            let first = self.store.get(lookup.owner.clone(), bound.clone(), now).await?;
            if let Some(first) = first.and_then(FoundSession::known) {
                self.store.remove(lookup.owner.clone(), created.record.id).await?;
                return Ok(first);
            }
            // The handle refers to a session that no longer exists.
            self.store.remove(lookup.owner.clone(), bound).await?;
        }
        // A caller that named a workspace once need not repeat it, and one that named none means the default
        // workspace. A handle already taken there keeps its session; if the store fails here, the handle
        // still works where it was given.
        let also = explicit.map_or(DEFAULT_WORKSPACE, |_| ANY_WORKSPACE);
        drop(self.store.bind(lookup.handle(also, name), created.id.to_string(), now).await);
        Ok(created)
    }

    /// Creates a session. The store decides whether an id is free, since other processes may use it.
    async fn create(&self, lookup: &SessionLookup<'_>, name: &str) -> Result<FoundSession, StoreError> {
        let plain = std::iter::once_with(|| SessionId::at(lookup.now));
        let tagged = std::iter::repeat_with(|| SessionId::tagged_at(lookup.now));
        for id in plain.chain(tagged).take(MAX_ID_ATTEMPTS) {
            if let Some(created) = self.try_create(lookup, id, name).await? {
                return Ok(created);
            }
        }
        Err(StoreError::Full { reason: "too many sessions began in the same second".to_owned() })
    }

    /// Creates a session with this id, unless it exists.
    async fn try_create(
        &self,
        lookup: &SessionLookup<'_>,
        id: SessionId,
        name: &str,
    ) -> Result<Option<FoundSession>, StoreError> {
        let record = SessionRecord {
            id: id.to_string(),
            name: name.to_owned(),
            owner: lookup.owner.clone(),
            workspace: None,
            created: lookup.now,
            used: lookup.now,
            expires: self.expiry(lookup.now),
        };
        let is_created = self.store.create(record.clone(), lookup.now).await?;
        Ok(is_created.then_some(FoundSession { id, record, is_new: true }))
    }

    /// Updates the last use of a session, unless that was done recently.
    async fn touch(&self, record: &SessionRecord, now: SystemTime) -> Result<(), StoreError> {
        let since_last_use = now.duration_since(record.used).unwrap_or_default();
        if since_last_use < TOUCH_INTERVAL.min(self.settings.idle_timeout / 2) {
            return Ok(());
        }
        let touched = SessionRecord { used: now, expires: self.expiry(now), ..record.clone() };
        self.store.put(touched, now).await
    }

    fn expiry(&self, now: SystemTime) -> SystemTime {
        now.checked_add(self.settings.idle_timeout).unwrap_or(now)
    }
}

/// A session in the store.
struct FoundSession {
    id: SessionId,
    record: SessionRecord,
    is_new: bool,
}

impl FoundSession {
    /// Wraps an existing record; `None` if its id is not a valid session id.
    fn known(record: SessionRecord) -> Option<Self> {
        Some(Self { id: SessionId::parse(&record.id)?, record, is_new: false })
    }
}

/// The session lookup of one call.
struct SessionLookup<'a> {
    context: &'a CallerContext<'a>,
    named: SessionRef<'a>,
    owner: &'a Owner,
    now: SystemTime,
}

/// Reference to a session.
enum SessionRef<'a> {
    /// None given.
    Unnamed,
    /// None given, but the connection has a session.
    Connection(&'a SessionId),
    /// A session id.
    Id(SessionId),
    /// A handle chosen by the caller.
    Handle(&'a str),
}

impl<'a> SessionRef<'a> {
    fn of(name: Option<&'a str>, connection: Option<&'a SessionId>) -> Result<Self, SessionError> {
        let Some(name) = name else { return Ok(connection.map_or(Self::Unnamed, Self::Connection)) };
        if let Some(id) = SessionId::parse(name) {
            return Ok(Self::Id(id));
        }
        let n_characters = name.chars().count();
        if n_characters > MAX_HANDLE {
            return Err(SessionError::TooLong { n_characters });
        }
        match name.chars().position(char::is_control) {
            Some(before) => Err(SessionError::Control { position: before + 1 }),
            None => Ok(Self::Handle(name)),
        }
    }
}

impl SessionLookup<'_> {
    fn explicit_workspace(&self) -> Option<&str> {
        self.context.workspace_context.as_deref().or(self.context.context_workspace)
    }

    fn handle(&self, workspace: &str, name: &str) -> SessionHandle {
        SessionHandle { owner: self.owner.clone(), workspace: workspace.to_owned(), name: name.to_owned() }
    }

    fn entered(&self, found: FoundSession, touch_error: Option<&StoreError>) -> EnteredSession {
        let requested_name = self.context.session.filter(|name| *name != found.id.as_str());
        EnteredSession {
            notice: requested_name.filter(|_| found.is_new).map(|name| notice(&found.id, name)),
            name: found.record.name.clone(),
            is_new: found.is_new,
            requested_name: requested_name.map(str::to_owned),
            workspace: self.context.workspace(found.record.workspace.as_deref()),
            warning: touch_error.map(|error| format!("The session may expire early: {error}.")),
            stored: Some(found.record),
            id: found.id,
        }
    }

    /// The session as named by the caller, which cannot be verified.
    fn unverified(&self, error: &StoreError) -> EnteredSession {
        let (id, name, is_new) = match &self.named {
            // Tagged, since concurrent sessions of this second are unknown.
            SessionRef::Unnamed => (SessionId::tagged_at(self.now), DEFAULT_NAME.to_owned(), true),
            SessionRef::Connection(id) => ((*id).clone(), DEFAULT_NAME.to_owned(), false),
            SessionRef::Id(id) => (id.clone(), format!("Session {id}"), false),
            SessionRef::Handle(handle) => (SessionId::tagged_at(self.now), (*handle).to_owned(), true),
        };
        let requested_name = self.context.session.filter(|name| *name != id.as_str());
        EnteredSession {
            notice: requested_name.filter(|_| is_new).map(|name| notice(&id, name)),
            name,
            is_new,
            requested_name: requested_name.map(str::to_owned),
            workspace: self.context.workspace(None),
            warning: Some(format!("Cannot look up the session: {error}.")),
            stored: None,
            id,
        }
    }
}

fn notice(id: &SessionId, requested_name: &str) -> String {
    format!("Session {id} has begun for {requested_name:?}; pass {id} as context.sessionId from now on.")
}
