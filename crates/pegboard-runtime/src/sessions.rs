//! Sessions that callers come back to by name, and the workspace that each is bound to.
//!
//! A caller names its session in `context.sessionId`: by the id that it was given, or by any words of its own, which
//! then stand for one session of that caller. Who names none gets the session of its connection. A session lives as
//! long as it is used, and nobody reaches the session of somebody else.

mod id;
mod said;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use pegboard_core::call::WorkspaceSource;
use pegboard_core::store::{SessionHandle, SessionRecord, SessionStore, StoreError};
use serde_json::Value;
use tokio::time;

pub use self::id::SessionId;
use self::said::workspace_in;
pub use self::said::{DEFAULT_WORKSPACE, Purpose, Said, Workspace, for_the_runtime};
pub(crate) use self::said::{text, without_context};

/// How long a name for a session may be, in characters.
const MAX_HANDLE: usize = 128;
/// The name of a session that nobody named.
const DEFAULT_NAME: &str = "Default Session";
/// The workspace of a handle that was said without one. No workspace has this id.
const ANY_WORKSPACE: &str = "";
/// How often the last use of a session is written down at most.
const MAX_REFRESH: Duration = Duration::from_mins(1);
/// How long a session may be kept at most: what is later than this cannot be told from for ever.
const MAX_IDLE: Duration = Duration::from_hours(100 * 365 * 24);
/// How many ids are tried for a session that begins in the same second as others.
const MAX_IDS: usize = 32;
/// How often something is tried again that somebody else did at the same time.
const MAX_RACES: usize = 2;

/// How sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// How long a session is kept that nobody uses.
    pub idle: Duration,
    /// How long a call waits for the store before it goes on without.
    pub patience: Duration,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { idle: Duration::from_hours(24), patience: Duration::from_secs(5) }
    }
}

/// Why a call cannot be put into a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The name is too long.
    #[error(
        "context.sessionId has {n_characters} characters; give at most {MAX_HANDLE}, or leave it out to get a session"
    )]
    TooLong {
        /// How long it is.
        n_characters: usize,
    },
    /// The name has characters that nobody could see or type.
    #[error("context.sessionId has a control character at position {position}; give plain text in one line")]
    Control {
        /// Which character, from 1.
        position: usize,
    },
}

/// A session that a call has entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Its id.
    pub id: SessionId,
    /// What people call it.
    pub name: String,
    /// Whether it has just begun.
    pub is_new: bool,
    /// What the caller said, if that is not the id.
    pub replaced: Option<String>,
    /// The workspace of the call.
    pub workspace: Workspace,
    /// One line for the caller, when there is something to know.
    pub notice: Option<String>,
    /// Why the session could not be looked up or kept; the call goes on.
    pub warning: Option<String>,
    /// What the store knew of it; nothing if it could not be looked up.
    kept: Option<SessionRecord>,
}

/// How a call in a session ended.
#[derive(Clone, Copy, Debug)]
pub enum CallEnd<'a> {
    /// It went well, with or without a structured result.
    Succeeded(Option<&'a Value>),
    /// It did not go well.
    Failed,
}

/// The sessions there are.
///
/// ```
/// use pegboard_core::store::SessionStore;
/// use pegboard_runtime::sessions::{Said, SessionError, SessionSettings, Sessions};
/// use std::{sync::Arc, time::SystemTime};
///
/// async fn first_call(store: Arc<dyn SessionStore>) -> Result<(), SessionError> {
///     let sessions = Sessions::new(store, SessionSettings::default());
///     let said = Said { session: Some("budget work"), ..Said::default() };
///     let entered = sessions.enter(&said, "ann", None, SystemTime::now()).await?;
///     assert_eq!(entered.name, "budget work");
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    settings: SessionSettings,
}

impl Sessions {
    /// Sessions that are kept in a store.
    pub fn new(store: Arc<dyn SessionStore>, settings: SessionSettings) -> Self {
        Self { store, settings: SessionSettings { idle: settings.idle.min(MAX_IDLE), ..settings } }
    }

    /// The session that a call belongs to, which begins if there is none yet.
    ///
    /// `connection` is the session that the caller's connection was given before. A store that does not answer costs
    /// the look-up and not the call: what was said is then believed, with a warning. Whoever gives something away by
    /// session must therefore look at the principal too.
    pub async fn enter(
        &self,
        said: &Said<'_>,
        principal: &str,
        connection: Option<&SessionId>,
        now: SystemTime,
    ) -> Result<Entered, SessionError> {
        let visit = Visit { said, named: Named::of(said.session, connection)?, principal, now };
        let found = self.in_time(self.find(&visit)).await;
        Ok(match found {
            Ok(found) => {
                let refreshed = self.in_time(self.refresh(&found.record, now)).await;
                visit.entered(found, refreshed.err().as_ref())
            }
            Err(error) => visit.unverified(&error),
        })
    }

    /// Binds a session to the workspace that a successful call named or gave back, for the calls to come.
    ///
    /// What the result says in `workspaceContext` counts more than what the call said. Answers the workspace if that
    /// is another than before. A session that could not be looked up is not bound.
    pub async fn bind(
        &self,
        entered: &Entered,
        end: CallEnd<'_>,
        now: SystemTime,
    ) -> Result<Option<String>, StoreError> {
        let CallEnd::Succeeded(result) = end else { return Ok(None) };
        let given = result.and_then(Value::as_object).and_then(workspace_in);
        let named = entered.workspace.source.is_explicit().then_some(entered.workspace.id.as_str());
        let (Some(workspace), Some(kept)) = (given.as_deref().or(named), &entered.kept) else {
            return Ok(None);
        };
        if kept.workspace.as_deref() == Some(workspace) {
            return Ok(None);
        }
        self.in_time(self.rebind(kept, workspace, now)).await
    }

    async fn rebind(
        &self,
        kept: &SessionRecord,
        workspace: &str,
        now: SystemTime,
    ) -> Result<Option<String>, StoreError> {
        let Some(mut record) = self.store.get(kept.id.clone(), now).await? else { return Ok(None) };
        // The call may have outlived its session, and the id may be somebody else's by now.
        if record.principal != kept.principal || record.workspace.as_deref() == Some(workspace) {
            return Ok(None);
        }
        record.workspace = Some(workspace.to_owned());
        self.store.put(record, now).await?;
        Ok(Some(workspace.to_owned()))
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let patience = self.settings.patience;
        time::timeout(patience, asked)
            .await
            .unwrap_or_else(|_| Err(StoreError::Failed { reason: format!("nothing within {patience:?}") }))
    }

    async fn find(&self, visit: &Visit<'_>) -> Result<Found, StoreError> {
        match &visit.named {
            Named::Nothing => self.begin(visit, DEFAULT_NAME).await,
            Named::Connection(id) => match self.known_or_begun(visit, id, DEFAULT_NAME).await? {
                Some(found) => Ok(found),
                None => self.begin(visit, DEFAULT_NAME).await,
            },
            Named::Id(id) => match self.known_or_begun(visit, id, &format!("Session {id}")).await? {
                Some(found) => Ok(found),
                // It is somebody else's. To this caller it is a name like any other.
                None => self.by_handle(visit, id.as_str()).await,
            },
            Named::Handle(handle) => self.by_handle(visit, handle).await,
        }
    }

    /// The session of this id, or a new one; nothing if the id is somebody else's.
    async fn known_or_begun(
        &self,
        visit: &Visit<'_>,
        id: &SessionId,
        name: &str,
    ) -> Result<Option<Found>, StoreError> {
        for _ in 0..MAX_RACES {
            if let Some(record) = self.store.get(id.to_string(), visit.now).await? {
                let is_own = record.principal == visit.principal;
                return Ok(is_own.then(|| Found { id: id.clone(), record, is_new: false }));
            }
            if let Some(begun) = self.begin_as(visit, id.clone(), name).await? {
                return Ok(Some(begun));
            }
        }
        Ok(None)
    }

    /// The session that a name stands for, or a new one that it stands for from now on.
    async fn by_handle(&self, visit: &Visit<'_>, name: &str) -> Result<Found, StoreError> {
        let now = visit.now;
        let explicit = visit.explicit_workspace();
        let handle = visit.handle(explicit.unwrap_or(ANY_WORKSPACE), name);
        if let Some(found) = self.store.find(handle.clone(), now).await?.and_then(Found::known) {
            return Ok(found);
        }
        let begun = self.begin(visit, name).await?;
        for _ in 0..MAX_RACES {
            let bound = self.store.bind(handle.clone(), begun.id.to_string(), now).await?;
            if bound == begun.id.as_str() {
                break;
            }
            // Somebody said the same at the same time, and was first.
            if let Some(first) = self.store.get(bound.clone(), now).await?.and_then(Found::known) {
                self.store.remove(begun.record.id).await?;
                return Ok(first);
            }
            // The name stands for a session that is no more.
            self.store.remove(bound).await?;
        }
        // Whoever named a workspace once need not name it again, and who named none means the default one. If the
        // name is taken there, it stays so; and if the store fails here, the name still works where it was said.
        let also = explicit.map_or(DEFAULT_WORKSPACE, |_| ANY_WORKSPACE);
        drop(self.store.bind(visit.handle(also, name), begun.id.to_string(), now).await);
        Ok(begun)
    }

    /// A new session. Whether an id is free is for the store to say, since others may use it too.
    async fn begin(&self, visit: &Visit<'_>, name: &str) -> Result<Found, StoreError> {
        let plain = std::iter::once_with(|| SessionId::at(visit.now));
        let tagged = std::iter::repeat_with(|| SessionId::tagged_at(visit.now));
        for id in plain.chain(tagged).take(MAX_IDS) {
            if let Some(begun) = self.begin_as(visit, id, name).await? {
                return Ok(begun);
            }
        }
        Err(StoreError::Full { reason: "too many sessions began in the same second".to_owned() })
    }

    /// A new session of this id, unless there is one.
    async fn begin_as(
        &self,
        visit: &Visit<'_>,
        id: SessionId,
        name: &str,
    ) -> Result<Option<Found>, StoreError> {
        let record = SessionRecord {
            id: id.to_string(),
            name: name.to_owned(),
            principal: visit.principal.to_owned(),
            workspace: None,
            created: visit.now,
            used: visit.now,
            expires: self.expiry(visit.now),
        };
        let is_begun = self.store.create(record.clone(), visit.now).await?;
        Ok(is_begun.then_some(Found { id, record, is_new: true }))
    }

    /// Writes down that a session is used, unless that was done a moment ago.
    async fn refresh(&self, record: &SessionRecord, now: SystemTime) -> Result<(), StoreError> {
        let unused = now.duration_since(record.used).unwrap_or_default();
        if unused < MAX_REFRESH.min(self.settings.idle / 2) {
            return Ok(());
        }
        let refreshed = SessionRecord { used: now, expires: self.expiry(now), ..record.clone() };
        self.store.put(refreshed, now).await
    }

    fn expiry(&self, now: SystemTime) -> SystemTime {
        now.checked_add(self.settings.idle).unwrap_or(now)
    }
}

/// A session in the store.
struct Found {
    id: SessionId,
    record: SessionRecord,
    is_new: bool,
}

impl Found {
    /// A session that was there before. One whose id is none of ours counts as not there.
    fn known(record: SessionRecord) -> Option<Self> {
        Some(Self { id: SessionId::parse(&record.id)?, record, is_new: false })
    }
}

/// One call that looks for its session.
struct Visit<'a> {
    said: &'a Said<'a>,
    named: Named<'a>,
    principal: &'a str,
    now: SystemTime,
}

/// How a session is named.
enum Named<'a> {
    /// Not at all.
    Nothing,
    /// Not at all, by somebody whose connection has one.
    Connection(&'a SessionId),
    /// By an id.
    Id(SessionId),
    /// By words of the caller's own.
    Handle(&'a str),
}

impl<'a> Named<'a> {
    fn of(said: Option<&'a str>, connection: Option<&'a SessionId>) -> Result<Self, SessionError> {
        let Some(said) = said else { return Ok(connection.map_or(Self::Nothing, Self::Connection)) };
        if let Some(id) = SessionId::parse(said) {
            return Ok(Self::Id(id));
        }
        let n_characters = said.chars().count();
        if n_characters > MAX_HANDLE {
            return Err(SessionError::TooLong { n_characters });
        }
        match said.chars().position(char::is_control) {
            Some(before) => Err(SessionError::Control { position: before + 1 }),
            None => Ok(Self::Handle(said)),
        }
    }
}

impl Visit<'_> {
    fn explicit_workspace(&self) -> Option<&str> {
        self.said.workspace_context.as_deref().or(self.said.context_workspace)
    }

    fn handle(&self, workspace: &str, name: &str) -> SessionHandle {
        SessionHandle {
            principal: self.principal.to_owned(),
            workspace: workspace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn entered(&self, found: Found, refused: Option<&StoreError>) -> Entered {
        let replaced = self.said.session.filter(|said| *said != found.id.as_str());
        Entered {
            notice: found.is_new.then(|| notice(&found.id, replaced)),
            name: found.record.name.clone(),
            is_new: found.is_new,
            replaced: replaced.map(str::to_owned),
            workspace: self.said.workspace(found.record.workspace.as_deref()),
            warning: refused.map(|error| format!("The session may end early: {error}.")),
            kept: Some(found.record),
            id: found.id,
        }
    }

    /// The session as the caller says, since nobody can tell otherwise.
    fn unverified(&self, error: &StoreError) -> Entered {
        let (id, name, is_new) = match &self.named {
            // With a tag, since nobody can tell who else begins one in this second.
            Named::Nothing => (SessionId::tagged_at(self.now), DEFAULT_NAME.to_owned(), true),
            Named::Connection(id) => ((*id).clone(), DEFAULT_NAME.to_owned(), false),
            Named::Id(id) => (id.clone(), format!("Session {id}"), false),
            Named::Handle(handle) => (SessionId::tagged_at(self.now), (*handle).to_owned(), true),
        };
        let replaced = self.said.session.filter(|said| *said != id.as_str());
        Entered {
            notice: is_new.then(|| notice(&id, replaced)),
            name,
            is_new,
            replaced: replaced.map(str::to_owned),
            workspace: self.said.workspace(None),
            warning: Some(format!("The session could not be looked up: {error}.")),
            kept: None,
            id,
        }
    }
}

fn notice(id: &SessionId, replaced: Option<&str>) -> String {
    match replaced {
        Some(said) => {
            format!("Session {id} has begun for {said:?}; pass {id} as context.sessionId from now on.")
        }
        None => format!("Session {id} has begun; pass it as context.sessionId to come back to it."),
    }
}
