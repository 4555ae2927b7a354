//! Clients that open with `initialize` and keep a session.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use super::round::{ask_all, check_capabilities};
use super::{
    Change, ClientDescription, DEFAULT_LOG_LEVEL, Peer, Reply, Server, ServerRequest, Service, SessionId,
    stateless,
};
use crate::client::Era;
use crate::connection::{Connection, Inbound, Receiver, WeakConnection};
use crate::era::{LogLevel, Revision};
use crate::link::Link;
use crate::message::{Id, Notification, Request, RpcError, code};
use pegboard_json::RawJson;

/// How many resources one client may subscribe to.
const MAX_SUBSCRIPTIONS: usize = 10_000;
/// How long the address of one may be.
const MAX_URI_BYTES: usize = 8 * 1024;

/// How often one request may come back with questions.
const MAX_ROUNDS: usize = 20;

/// How many tasks that are not over a client hears of.
const MAX_TASKS: usize = 10_000;

/// Serves one client over a link, in whichever era it speaks.
pub(crate) fn open(server: &Server, link: Link) -> Connection {
    let life = Arc::new(Life::begin(Arc::clone(&server.service)));
    let session = Arc::new(Session { life, server: server.clone(), state: Arc::default() });
    let connection = Connection::open(link, session.clone(), server.limits);
    forward_changes(&session, &connection);
    connection
}

/// What is known of one client.
struct Session {
    life: Arc<Life>,
    server: Server,
    state: Arc<Mutex<State>>,
}

/// How long a session lasts: as long as its connection, and as every request of it.
pub(super) struct Life {
    pub(super) id: SessionId,
    service: Arc<dyn Service>,
}

impl Life {
    pub(super) fn begin(service: Arc<dyn Service>) -> Self {
        Self { id: SessionId::random(), service }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.service.ended(&self.id);
    }
}

#[derive(Default)]
struct State {
    client: Option<(Revision, ClientDescription)>,
    log_level: Option<LogLevel>,
    subscriptions: HashSet<String>,
    /// The tasks that were made for this client and are not over.
    tasks: HashSet<String>,
}

impl Receiver for Session {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let Inbound { request, headers, connection, .. } = inbound;
        if self.server.era(Era::claimed(request.params.as_ref())) == Era::Stateless {
            let peer = Peer::one_way(connection, request.id.clone());
            return stateless::call(&self.server, request, headers, peer).boxed();
        }
        match &*request.method {
            "initialize" => std::future::ready(self.initialize(&request)).boxed(),
            "ping" => std::future::ready(Ok(RawJson::empty_object())).boxed(),
            _ => self.call(request, headers, connection),
        }
    }

    fn notification(&self, notification: Notification, _about: Option<Id>) {
        self.server.service.notified(&self.life.id, notification);
    }
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn initialize(&self, request: &Request) -> Result<RawJson, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            protocol_version: String,
            #[serde(default)]
            capabilities: serde_json::Value,
            client_info: Option<serde_json::Value>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Result_ {
            protocol_version: Revision,
            #[serde(skip_serializing_if = "Option::is_none")]
            instructions: Option<String>,
        }
        let params = request.params.clone().unwrap_or_else(RawJson::empty_object);
        let params: Params = params.read().map_err(RpcError::invalid_params)?;
        let asked =
            params.protocol_version.parse::<Revision>().ok().filter(|revision| !revision.is_stateless());
        let revision = asked.unwrap_or(Revision::NEWEST_WITH_SESSIONS);
        let client = ClientDescription {
            info: params.client_info.map(RawJson::from),
            capabilities: RawJson::from(params.capabilities),
        };
        let description = self.server.service.describe_to(revision, &client);
        let remarks = self.server.service.remarks(&client);
        self.state().client = Some((revision, client));
        let result = Result_ { protocol_version: revision, instructions: description.instructions };
        let result = RawJson::of(&result)
            .with("capabilities", &description.capabilities)
            .with("serverInfo", &description.info);
        Ok(match remarks {
            Some(remarks) => result.with("_meta", &remarks),
            None => result,
        })
    }

    fn call(
        &self,
        request: Request,
        headers: HeaderMap,
        connection: WeakConnection,
    ) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let (client, log_level) = {
            let state = self.state();
            (state.client.clone(), state.log_level)
        };
        let Some((revision, client)) = client else {
            let error =
                RpcError::new(code::INVALID_REQUEST, "Invalid request: the session begins with initialize");
            return std::future::ready(Err(error)).boxed();
        };
        if let Some(error) = self.remember(&request) {
            return std::future::ready(Err(error)).boxed();
        }
        let params = request.params.unwrap_or_else(RawJson::empty_object);
        let token = params.at(&["_meta", "progressToken"]);
        let peer = Peer::session(connection, request.id).with_wishes(token, log_level);
        let (known, life) = (Arc::clone(&self.state), Arc::clone(&self.life));
        let method = request.method;
        async move {
            let (mut answers, mut state) = (None, None);
            for _ in 0..MAX_ROUNDS {
                let request = ServerRequest {
                    method: Arc::clone(&method),
                    params: params.clone(),
                    revision,
                    session: Some(life.id.clone()),
                    client: client.clone(),
                    answers: answers.take(),
                    state: state.take(),
                    headers: headers.clone(),
                    peer: peer.clone(),
                };
                match life.service.call(request).await? {
                    Reply::Result(result) => {
                        match &*method {
                            "tools/call" => locked(&known).remember_task(&result),
                            // The service has agreed to it.
                            "resources/subscribe" => locked(&known).subscribe(&params),
                            _ => {}
                        }
                        return Ok(plain(&result));
                    }
                    Reply::InputRequired { questions, state: kept } => {
                        check_capabilities(&client, &questions)?;
                        answers = Some(ask_all(&peer, &questions).await?);
                        state = kept;
                    }
                }
            }
            Err(RpcError::new(code::INTERNAL_ERROR, "The server kept asking without an end"))
        }
        .boxed()
    }

    /// Notes what a request says of the session; the service still answers it.
    fn remember(&self, request: &Request) -> Option<RpcError> {
        let member = |name: &str| request.params.as_ref().and_then(|params| params.get(name));
        match &*request.method {
            "logging/setLevel" => match member("level").and_then(|level| level.read::<LogLevel>().ok()) {
                Some(level) => self.state().log_level = Some(level),
                None => return Some(RpcError::invalid_params("level must be a log level, such as info")),
            },
            "resources/subscribe" => {
                if self.state().subscriptions.len() >= MAX_SUBSCRIPTIONS {
                    let problem = format!("at most {MAX_SUBSCRIPTIONS} resources can be subscribed");
                    return Some(RpcError::invalid_params(problem));
                }
                if member("uri").is_some_and(|uri| uri.as_bytes().len() > MAX_URI_BYTES) {
                    return Some(RpcError::invalid_params(format!(
                        "a uri has at most {MAX_URI_BYTES} bytes"
                    )));
                }
            }
            "resources/unsubscribe" => {
                if let Some(uri) = member("uri").and_then(|uri| uri.read::<String>().ok()) {
                    self.state().subscriptions.remove(&uri);
                }
            }
            _ => {}
        }
        None
    }

    /// Whether this client wants to hear of a change, and in which words.
    fn words_for(&self, change: &Change) -> Option<Notification> {
        let mut state = self.state();
        state.client.as_ref()?;
        Some(match change {
            Change::Tools => Notification::new("notifications/tools/list_changed", None),
            Change::Prompts => Notification::new("notifications/prompts/list_changed", None),
            Change::Resources => Notification::new("notifications/resources/list_changed", None),
            Change::Resource { uri } => {
                state.subscriptions.get(uri)?;
                let params = RawJson::of(&serde_json::json!({"uri": uri}));
                Notification::new("notifications/resources/updated", Some(params))
            }
            Change::Log(line) => {
                let level = line.get("level").and_then(|level| level.read::<LogLevel>().ok())?;
                if level < state.log_level.unwrap_or(DEFAULT_LOG_LEVEL) {
                    return None;
                }
                Notification::new("notifications/message", Some(line.clone()))
            }
            Change::BeenThere(params) => {
                let (_, client) = state.client.as_ref()?;
                client.capabilities.at(&["elicitation", "url"])?;
                Notification::new("notifications/elicitation/complete", Some(params.clone()))
            }
            Change::Task { id, state: task } => {
                state.tasks.get(id)?;
                let status = task.get("status");
                let status = status.as_ref().and_then(RawJson::text).unwrap_or_default();
                if matches!(&*status, "completed" | "failed" | "cancelled") {
                    state.tasks.remove(id);
                }
                Notification::new("notifications/tasks/status", Some(task.clone()))
            }
        })
    }
}

impl State {
    fn subscribe(&mut self, params: &RawJson) {
        if let Some(uri) = params.get("uri").and_then(|uri| uri.read::<String>().ok()) {
            self.subscriptions.insert(uri);
        }
    }

    /// Notes the task that a result announces, if it does.
    fn remember_task(&mut self, result: &RawJson) {
        let id = result.at(&["task", "taskId"]);
        if let Some(id) = id.as_ref().and_then(RawJson::text)
            && self.tasks.len() < MAX_TASKS
        {
            self.tasks.insert(id.into_owned());
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Every change of the state is a single call, so a panic cannot leave it half-changed.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A result without what only the stateless era knows. Before it, structured content was an object or was not there,
/// and clients refuse the whole result over anything else.
fn plain(result: &RawJson) -> RawJson {
    let plain = result.without("resultType").without("ttlMs").without("cacheScope");
    match plain.get("structuredContent") {
        Some(data) if !data.is_object() => plain.without("structuredContent"),
        _ => plain,
    }
}

/// Tells the client what changes, until its connection ends.
fn forward_changes(session: &Arc<Session>, connection: &Connection) {
    let Some(mut changes) = session.server.service.changes() else { return };
    let (session, connection) = (Arc::downgrade(session), connection.downgrade());
    tokio::spawn(async move {
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = connection.closed() => return,
            };
            let (Some(session), Some(connection)) = (session.upgrade(), connection.upgrade()) else { return };
            match change {
                Ok(change) => {
                    if let Some(notification) = session.words_for(&change) {
                        let _ = connection.notify(notification, None).await;
                    }
                }
                // Too slow for every change: everything is to be read anew.
                Err(RecvError::Lagged(_)) => {
                    let subscribed: Vec<String> = session.state().subscriptions.iter().cloned().collect();
                    let updated = subscribed.into_iter().map(|uri| Change::Resource { uri });
                    for change in
                        [Change::Tools, Change::Prompts, Change::Resources].into_iter().chain(updated)
                    {
                        if let Some(notification) = session.words_for(&change) {
                            let _ = connection.notify(notification, None).await;
                        }
                    }
                }
                Err(RecvError::Closed) => return,
            }
        }
    });
}
