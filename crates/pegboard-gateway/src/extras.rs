//! What clients may want beside tools: prompts, resources, completions and word of what changes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pegboard_core::call::{CallContext, Ended};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Method, Request, Update};
use pegboard_json::RawJson;
use pegboard_runtime::requests::ServerUpdate;
use pegboard_runtime::{Caller, Memory};
use pegboard_wire::era::Revision;
use pegboard_wire::server::{Change, Reply, SessionId};
use pegboard_wire::{RpcError, code};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::library::{Found, Kind, Library};
use crate::profile::Board;
use crate::surface::Derived;
use crate::visit::Visit;
use crate::warming::whole;

/// How many servers are asked for a resource that none of them lists.
const MAX_ASKED: usize = 16;

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
        let reply = visit.request(&last.from, request, in_words).await?;
        if let (Extra::Subscribe, Some(session)) = (extra, &session) {
            self.subscribers.add(&uri, session);
        }
        Ok(reply)
    }

    /// Forgets a session that is over, and what nobody else wants to hear of.
    pub(crate) fn end(&self, session: &SessionId) {
        let library = self.library();
        for uri in self.subscribers.end(session) {
            let caller = self.board.caller(Memory::Everything);
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

/// How it went, in the words of the protocol. What a server refused in them passes as it is.
fn in_words(ended: &Ended) -> Result<RawJson, RpcError> {
    match &ended.result {
        Ok(output) => Ok(output.to_result()),
        Err(CallError::Failed(error)) if error.protocol().is_some() => {
            let refused = error.protocol().expect("it is there");
            let words = RpcError::new(refused.code, refused.message.clone());
            Err(match &refused.data {
                Some(data) => words.with_data(data.clone()),
                None => words,
            })
        }
        Err(error) => {
            let data = json!({"kind": error.kind()});
            Err(RpcError::new(code::INTERNAL_ERROR, error.text()).with_data(RawJson::from(data)))
        }
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
