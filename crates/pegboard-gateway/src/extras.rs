//! What clients may want beside tools: prompts, resources, completions and word of what changes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use pegboard_core::call::{CallContext, Ended};
use pegboard_core::provider::{Method, Request, Update};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::requests::{ServerId, ServerUpdate};
use pegboard_wire::era::Revision;
use pegboard_wire::server::{Change, Reply, SessionId};
use pegboard_wire::{RpcError, code};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time;

use crate::library::{Found, Kind, Library};
use crate::profile::Board;
use crate::result;
use crate::surface::Derived;
use crate::visit::Visit;
use crate::warming::whole;

/// How many servers are asked for a resource that none of them lists.
const MAX_ASKED: usize = 16;

/// How long servers may take to say that they tell of changes, before a client is told that it will hear of them.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client wants beside tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    GetPrompt,
    ReadResource,
    Complete,
    Subscribe,
    Unsubscribe,
}

impl Extra {
    pub(crate) fn of(method: &str) -> Option<Self> {
        Some(match method {
            "prompts/get" => Self::GetPrompt,
            "resources/read" => Self::ReadResource,
            "completion/complete" => Self::Complete,
            "resources/subscribe" => Self::Subscribe,
            "resources/unsubscribe" => Self::Unsubscribe,
            _ => return None,
        })
    }

    fn method(self) -> Method {
        match self {
            Self::GetPrompt => Method::GetPrompt,
            Self::ReadResource => Method::ReadResource,
            Self::Complete => Method::Complete,
            Self::Subscribe => Method::Subscribe,
            Self::Unsubscribe => Method::Unsubscribe,
        }
    }

    /// Who may have what is wanted, and what the parameters are there.
    fn find(self, library: &Library, params: &RawJson) -> Result<Vec<(Found, RawJson)>, RpcError> {
        let renamed = |found: Found, key: &str| {
            let params = params.with(key, &RawJson::of(&found.own));
            (found, params)
        };
        match self {
            Self::GetPrompt => {
                let name = text(params, "name")?;
                let found = library.prompt(&name).ok_or_else(|| {
                    RpcError::invalid_params(format_args!(
                        "There is no prompt '{name}'. prompts/list has their names"
                    ))
                })?;
                Ok(vec![renamed(found, "name")])
            }
            Self::ReadResource | Self::Subscribe | Self::Unsubscribe => {
                let found = library.resource(&text(params, "uri")?);
                Ok(found.into_iter().take(MAX_ASKED).map(|found| renamed(found, "uri")).collect())
            }
            Self::Complete => {
                let reference = params.get("ref").unwrap_or_else(RawJson::empty_object);
                let (key, found) = if text(&reference, "type")? == "ref/prompt" {
                    ("name", library.prompt(&text(&reference, "name")?))
                } else {
                    let uri = text(&reference, "uri")?;
                    ("uri", library.template(&uri).or_else(|| library.resource(&uri).into_iter().next()))
                };
                let found =
                    found.ok_or_else(|| RpcError::invalid_params("ref means nothing that is listed here"))?;
                let reference = reference.with(key, &RawJson::of(&found.own));
                Ok(vec![(found, params.with("ref", &reference))])
            }
        }
    }
}

/// Something beside tools that a client wants done.
pub(crate) struct Order {
    pub(crate) extra: Extra,
    pub(crate) session: Option<SessionId>,
    pub(crate) params: RawJson,
    pub(crate) revision: Revision,
}

/// Where the clients of one profile find what is there beside tools.
pub(crate) struct ReadingRoom {
    board: Arc<Board>,
    library: Derived<Library>,
    subscribers: Subscribers,
}

impl ReadingRoom {
    pub(crate) fn new(board: Arc<Board>) -> Self {
        Self { board, library: Derived::default(), subscribers: Subscribers::default() }
    }

    fn library(&self) -> Arc<Library> {
        self.library.get(self.board.runtime.catalogue(), |snapshot| Library::of(&self.board, snapshot))
    }

    /// A list, as an answer of the protocol.
    pub(crate) async fn list(&self, kind: Kind, caller: &Caller) -> RawJson {
        whole(&self.board).await;
        RawJson::empty_object().with(kind.member(), &self.library().list(kind, caller))
    }

    /// Whether somebody is known to have what is wanted.
    pub(crate) fn has(&self, order: &Order) -> bool {
        order.extra.find(&self.library(), &order.params).is_ok_and(|found| !found.is_empty())
    }

    /// Does what a client wants, at the server that has it.
    pub(crate) async fn carry_out(&self, order: Order, visit: Visit) -> Result<Reply, RpcError> {
        let Order { extra, session, params, revision } = order;
        let uri = params.get("uri").and_then(|uri| uri.read::<String>().ok()).unwrap_or_default();
        if let (Extra::Unsubscribe, Some(session)) = (extra, &session)
            && !self.subscribers.remove(&uri, session)
        {
            // Others still want to hear of it.
            return Ok(Reply::Result(RawJson::empty_object()));
        }
        let mut found = extra.find(&self.library(), &params)?;
        let Some((last, params)) = found.pop() else { return Err(not_found(&uri, revision)) };
        for (found, params) in found {
            // One that does not know it says so, and the next one is asked.
            let request = Request { method: extra.method(), params };
            if let Ok(output) = visit.caller.request(&found.from, request, visit.context()).await.result {
                return Ok(Reply::Result(output.to_result()));
            }
        }
        let request = Request { method: extra.method(), params };
        let reply = visit.request(&last.from, request, in_words).await;
        let reply = reply.map_err(|error| in_revision(error, revision))?;
        if let (Extra::Subscribe, Some(session)) = (extra, &session) {
            self.subscribers.add(&uri, session);
        }
        Ok(reply)
    }

    /// Has servers tell when resources change, for as long as a client listens.
    pub(crate) async fn watch(self: Arc<Self>, stream: SessionId, resources: Vec<String>) {
        let caller = self.board.nobody();
        let subscribing = stream::iter(&resources).for_each_concurrent(MAX_ASKED, |uri| {
            self.subscribers.add(uri, &stream);
            let params = RawJson::empty_object().with("uri", &RawJson::of(uri));
            let found = Extra::Subscribe.find(&self.library(), &params).unwrap_or_default();
            let caller = &caller;
            async move {
                for (found, params) in found {
                    let request = Request { method: Method::Subscribe, params };
                    if caller.request(&found.from, request, CallContext::default()).await.result.is_ok() {
                        return;
                    }
                }
            }
        });
        // A client that waits for the acknowledgement does not wait for a server that hangs.
        let _ = time::timeout(WATCH_TIMEOUT, subscribing).await;
    }

    /// Has servers tell their log from a level on. One that does not run is told when it does.
    pub(crate) fn set_log_level(&self, level: &RawJson) {
        let snapshot = self.board.runtime.catalogue();
        let caller = self.board.nobody();
        for (shelf, _) in snapshot.shelves() {
            if shelf.offer.features.logging && self.board.has(&shelf.toolbox) {
                let server = ServerId { toolbox: shelf.toolbox.clone(), server: shelf.server.clone() };
                let params = RawJson::empty_object().with("level", level);
                let request = Request { method: Method::SetLogLevel, params };
                // Nobody waits for it, and it ends by its own limit.
                tokio::spawn(caller.request(&server, request, CallContext::default()));
            }
        }
    }

    /// Forgets a session that is over, and what nobody else wants to hear of.
    pub(crate) fn end(&self, session: &SessionId) {
        let library = self.library();
        for uri in self.subscribers.end(session) {
            let caller = self.board.nobody();
            let params = RawJson::empty_object().with("uri", &RawJson::of(&uri));
            let Ok(found) = Extra::Unsubscribe.find(&library, &params) else { continue };
            for (found, params) in found {
                let request = Request { method: Method::Unsubscribe, params };
                // Nobody waits for it, and it ends by its own limit.
                tokio::spawn(caller.request(&found.from, request, CallContext::default()));
            }
        }
    }

    /// Tells clients what changes beside tools. Never ends.
    pub(crate) async fn tell(self: Arc<Self>, changes: broadcast::Sender<Change>) {
        let mut catalogues = self.board.runtime.catalogue_changes();
        let mut updates = self.board.runtime.updates();
        let mut library = self.library();
        loop {
            // With nobody connected what is told is simply lost.
            tokio::select! {
                news = catalogues.changed() => {
                    if news.is_err() {
                        return;
                    }
                    let now = self.library();
                    let (same_prompts, same_resources) = now.is_same(&library);
                    library = now;
                    if !same_prompts {
                        let _ = changes.send(Change::Prompts);
                    }
                    if !same_resources {
                        let _ = changes.send(Change::Resources);
                    }
                }
                update = updates.recv() => match update {
                    Ok(ServerUpdate { from, update: Update::Resource(params) }) if self.board.has(&from.toolbox) => {
                        let own = params.get("uri").and_then(|uri| uri.read::<String>().ok());
                        if let Some(own) = own {
                            let _ = changes.send(Change::Resource { uri: library.uri_of(&from, &own) });
                        }
                    }
                    Ok(ServerUpdate { from, update: Update::Log(line) }) if self.board.has(&from.toolbox) => {
                        let _ = changes.send(Change::Log(line));
                    }
                    Ok(ServerUpdate { from, update: Update::BeenThere(params) }) if self.board.has(&from.toolbox) => {
                        let _ = changes.send(Change::BeenThere(params));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }
}

fn not_found(uri: &str, revision: Revision) -> RpcError {
    let code = if revision.is_stateless() { code::INVALID_PARAMS } else { code::RESOURCE_NOT_FOUND };
    RpcError::new(code, "Resource not found").with_data(json!({"uri": uri}))
}

/// An error with the code that it has in the client's revision.
fn in_revision(error: RpcError, revision: Revision) -> RpcError {
    if error.code != code::RESOURCE_NOT_FOUND || !revision.is_stateless() {
        return error;
    }
    let again = RpcError::new(code::INVALID_PARAMS, error.message);
    match error.data {
        Some(data) => again.with_data(data),
        None => again,
    }
}

/// How it went, in the words of the protocol. What a server refused in them passes as it is.
fn in_words(ended: &Ended) -> Result<RawJson, RpcError> {
    match &ended.result {
        Ok(output) => Ok(output.to_result()),
        Err(error) => Err(result::refused(ended).unwrap_or_else(|| {
            let data = json!({"kind": error.kind()});
            RpcError::new(code::INTERNAL_ERROR, error.text()).with_data(RawJson::from(data))
        })),
    }
}

fn text(params: &RawJson, name: &str) -> Result<String, RpcError> {
    let text = params.get(name).and_then(|text| text.read::<String>().ok());
    text.ok_or_else(|| RpcError::invalid_params(format_args!("{name} must be a text")))
}

/// Which sessions want to hear of which resources, by the address that clients know.
#[derive(Default)]
pub(crate) struct Subscribers(Mutex<HashMap<String, HashSet<SessionId>>>);

impl Subscribers {
    pub(crate) fn add(&self, uri: &str, session: &SessionId) {
        self.all().entry(uri.to_owned()).or_default().insert(session.clone());
    }

    /// Forgets one wish; whether nobody else has it.
    pub(crate) fn remove(&self, uri: &str, session: &SessionId) -> bool {
        let mut all = self.all();
        let Some(sessions) = all.get_mut(uri) else { return true };
        sessions.remove(session);
        let is_last = sessions.is_empty();
        if is_last {
            all.remove(uri);
        }
        is_last
    }

    /// Forgets a session; gives the addresses that nobody else wants to hear of.
    pub(crate) fn end(&self, session: &SessionId) -> Vec<String> {
        let mut unwanted = Vec::new();
        self.all().retain(|uri, sessions| {
            if sessions.remove(session) && sessions.is_empty() {
                unwanted.push(uri.clone());
            }
            !sessions.is_empty()
        });
        unwanted
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, HashSet<SessionId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
