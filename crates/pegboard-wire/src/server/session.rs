//! Clients of the session era, which open with `initialize`.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use super::input_requests::{check_capabilities, send_input_requests};
use super::received_meta::ReceivedMeta;
use super::stateless::RequestMeta;
use super::{
    ClientDescription, ClientSessionId, DEFAULT_LOG_LEVEL, McpService, Peer, ResponseMemory, ServerRequest,
    ServiceChange, ServiceReply, ServiceServer, stateless,
};
use crate::connection::{Connection, InboundHandler, InboundRequest, WeakConnection};
use crate::era::{Era, LogLevel, Revision};
use crate::http::received_headers::ReceivedHeaders;
#[cfg(feature = "http-server")]
use crate::http::server::streams::SessionStreams;
use crate::message::{Id, Notification, Request, RpcError, code};
use crate::transport::TransportHandle;
use pegboard_json::RawJson;

/// Maximum number of resource subscriptions per client.
const MAX_SUBSCRIPTIONS: usize = 10_000;
/// Maximum length of a subscribed URI.
const MAX_URI_BYTES: usize = 8 * 1024;
/// Maximum length of all URIs to which a client subscribes.
const MAX_URIS_BYTES: usize = 1024 * 1024;
/// Maximum size of the name and the capabilities of a client, which are kept for the whole session.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

/// Maximum number of unfinished tasks that a client is notified of.
const MAX_TRACKED_TASKS: usize = 10_000;

/// Serves one client over a transport, in either era.
pub(crate) fn open(server: &ServiceServer, transport: TransportHandle, id: ClientSessionId) -> Connection {
    let session = ServerSession::new(Arc::new(server.clone()), id);
    let connection = Connection::open(transport, session.clone(), server.limits);
    forward_changes(&session, &connection);
    connection
}

/// Serves one client of the session era over HTTP. The sessions of an endpoint share the task that forwards changes.
#[cfg(feature = "http-server")]
pub(crate) fn open_http(
    server: &Arc<ServiceServer>,
    streams: Arc<SessionStreams>,
    id: ClientSessionId,
) -> (Connection, Arc<ServerSession>) {
    let session = ServerSession::new(Arc::clone(server), id);
    let connection = Connection::open_session(streams, session.clone(), server.limits);
    (connection, session)
}

/// The session of one client.
pub(crate) struct ServerSession {
    guard: Arc<SessionGuard>,
    server: Arc<ServiceServer>,
}

/// Parses the parameters of `initialize`.
fn parse_initialize(request: &Request) -> Result<(Revision, ClientDescription), RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeParams {
        protocol_version: String,
        #[serde(default)]
        capabilities: serde_json::Value,
        client_info: Option<serde_json::Value>,
    }
    let params = request.params.clone().unwrap_or_else(RawJson::empty_object);
    let params: InitializeParams = params.read().map_err(RpcError::invalid_params)?;
    let requested =
        params.protocol_version.parse::<Revision>().ok().filter(|revision| !revision.is_stateless());
    let client = ClientDescription {
        info: params.client_info.map(RawJson::from),
        capabilities: RawJson::from(params.capabilities),
    };
    if client.n_bytes() > MAX_DESCRIPTION_BYTES {
        let problem = format!("clientInfo and capabilities exceed {MAX_DESCRIPTION_BYTES} bytes");
        return Err(RpcError::invalid_params(problem));
    }
    Ok((requested.unwrap_or(Revision::NEWEST_WITH_SESSIONS), client))
}

/// Returns the result of `initialize`.
fn initialize_result(service: &dyn McpService, revision: Revision, client: &ClientDescription) -> RawJson {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        protocol_version: Revision,
        #[serde(skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
    }
    let description = service.describe_for(revision, client);
    let extra_meta = service.extra_meta(client);
    let result = InitializeResult { protocol_version: revision, instructions: description.instructions };
    let result = RawJson::of(&result)
        .with("capabilities", &description.capabilities)
        .with("serverInfo", &description.info);
    match extra_meta {
        Some(extra_meta) => result.with("_meta", &extra_meta),
        None => result,
    }
}

/// Ends a session when dropped: held by its connection and by each of its requests.
pub(super) struct SessionGuard {
    pub(super) id: ClientSessionId,
    service: Arc<dyn McpService>,
    response_memory: ResponseMemory,
    state: Mutex<ServerSessionState>,
}

impl SessionGuard {
    pub(super) fn new(id: ClientSessionId, server: &ServiceServer) -> Self {
        let (service, response_memory) = (Arc::clone(&server.service), server.response_memory.clone());
        Self { id, service, response_memory, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ServerSessionState> {
        // Every change of the state is a single call, so a panic cannot leave it inconsistent.
        self.state.lock()
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.service.on_session_ended(&self.id);
    }
}

#[derive(Default)]
struct ServerSessionState {
    client: Option<(Revision, Arc<ClientDescription>)>,
    /// The client has sent something after its handshake, so it is told of changes.
    is_active: bool,
    log_level: Option<LogLevel>,
    /// `None` for most sessions.
    followed: Option<Box<FollowedItems>>,
}

/// Resources and tasks with changes that a client is told of.
#[derive(Default)]
struct FollowedItems {
    subscriptions: HashSet<String>,
    /// Length of all subscribed URIs.
    n_uri_bytes: usize,
    /// Unfinished tasks created for this client.
    tasks: HashSet<String>,
}

impl InboundHandler for ServerSession {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let InboundRequest { request, headers, connection, .. } = inbound;
        if self.server.era(Era::claimed(request.params.as_ref())) == Era::Stateless {
            let peer = Peer::one_way(connection, request.id.clone());
            return match RequestMeta::parse(request.params.as_ref()) {
                Ok(meta) => {
                    stateless::call(ServiceServer::clone(&self.server), request, meta, headers, peer).boxed()
                }
                Err(error) => std::future::ready(Err(error)).boxed(),
            };
        }
        match &*request.method {
            "initialize" => self.initialize(&request),
            "ping" => std::future::ready(Ok(RawJson::empty_object())).boxed(),
            _ => self.call(request, headers, connection),
        }
    }

    fn notification(&self, notification: Notification, _related_request: Option<Id>) {
        self.state().is_active = true;
        self.server.service.on_notification(&self.guard.id, notification);
    }
}

impl ServerSession {
    fn new(server: Arc<ServiceServer>, id: ClientSessionId) -> Arc<Self> {
        Arc::new(Self { guard: Arc::new(SessionGuard::new(id, &server)), server })
    }

    fn state(&self) -> MutexGuard<'_, ServerSessionState> {
        self.guard.state()
    }

    fn initialize(&self, request: &Request) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let (revision, client) = match parse_initialize(request) {
            Ok(parsed) => parsed,
            Err(error) => return std::future::ready(Err(error)).boxed(),
        };
        let client = self.server.clients.share(client);
        // Set at once: a client may send more before it has the answer.
        self.state().client = Some((revision, Arc::clone(&client)));
        let service = Arc::clone(&self.server.service);
        async move {
            service.prepare(revision, &client).await;
            Ok(initialize_result(&*service, revision, &client))
        }
        .boxed()
    }

    fn call(
        &self,
        request: Request,
        headers: ReceivedHeaders,
        connection: WeakConnection,
    ) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let (client, log_level) = {
            let mut state = self.state();
            state.is_active = true;
            (state.client.clone(), state.log_level)
        };
        let Some((revision, client)) = client else {
            let error =
                RpcError::new(code::INVALID_REQUEST, "Invalid request: the session is not initialized");
            return std::future::ready(Err(error)).boxed();
        };
        if let Some(error) = self.track_request(&request, &connection) {
            return std::future::ready(Err(error)).boxed();
        }
        let params = request.params.unwrap_or_else(RawJson::empty_object);
        let received = ReceivedMeta::of(Some(&params));
        let peer = Peer::session(connection, request.id).with_progress(received.progress_token, log_level);
        let forwarded_meta = received.forwarded;
        let guard = Arc::clone(&self.guard);
        let method = request.method;
        async move {
            let (mut input_responses, mut state) = (None, None);
            for _ in 0..crate::MAX_INPUT_ROUNDS {
                let request = ServerRequest {
                    method: Arc::clone(&method),
                    params: params.clone(),
                    revision,
                    session: Some(guard.id.clone()),
                    client: Arc::clone(&client),
                    forwarded_meta: forwarded_meta.clone(),
                    input_responses: input_responses.take(),
                    state: state.take(),
                    headers: headers.clone(),
                    peer: peer.clone(),
                };
                match guard.service.call(request).await? {
                    ServiceReply::Result(result) => {
                        match &*method {
                            "tools/call" => guard.state().track_task(&result),
                            // The service has accepted the subscription.
                            "resources/subscribe" => guard.state().subscribe(&params),
                            _ => {}
                        }
                        return Ok(guard.response_memory.hold(strip_stateless_fields(result))?);
                    }
                    ServiceReply::InputRequired { input_requests, state: next_state } => {
                        check_capabilities(&client, &input_requests)?;
                        // Boxed like all that few calls need, so that the future of every other call stays small.
                        let responses = Box::pin(send_input_requests(&peer, &input_requests)).await?;
                        input_responses = Some(responses);
                        state = next_state;
                    }
                }
            }
            Err(RpcError::new(code::INTERNAL_ERROR, "Too many input rounds"))
        }
        .boxed()
    }

    /// Records session state that a request sets; the service still answers it.
    fn track_request(&self, request: &Request, connection: &WeakConnection) -> Option<RpcError> {
        let member = |name: &str| request.params.as_ref().and_then(|params| params.get(name));
        match &*request.method {
            "logging/setLevel" => match member("level").and_then(|level| level.read::<LogLevel>().ok()) {
                Some(level) => {
                    self.state().log_level = Some(level);
                    if let Some(connection) = connection.upgrade() {
                        connection.set_log_level(level);
                    }
                }
                None => return Some(RpcError::invalid_params("level must be a log level, such as info")),
            },
            "resources/subscribe" => {
                if self.state().n_subscriptions() >= MAX_SUBSCRIPTIONS {
                    let problem = format!("at most {MAX_SUBSCRIPTIONS} resource subscriptions are allowed");
                    return Some(RpcError::invalid_params(problem));
                }
                let n_bytes = member("uri").map_or(0, |uri| uri.as_bytes().len());
                if n_bytes > MAX_URI_BYTES {
                    return Some(RpcError::invalid_params(format!("uri exceeds {MAX_URI_BYTES} bytes")));
                }
                if self.state().n_uri_bytes() + n_bytes > MAX_URIS_BYTES {
                    let problem = format!("the URIs of all subscriptions exceed {MAX_URIS_BYTES} bytes");
                    return Some(RpcError::invalid_params(problem));
                }
            }
            "resources/unsubscribe" => {
                if let Some(uri) = member("uri").and_then(|uri| uri.read::<String>().ok())
                    && let Some(followed) = &mut self.state().followed
                {
                    followed.unsubscribe(&uri);
                }
            }
            _ => {}
        }
        None
    }

    /// Notifies the client of a change, if it wants to know.
    pub(crate) async fn forward(&self, change: &Result<ServiceChange, RecvError>, connection: &Connection) {
        let notify = async |change: &ServiceChange| {
            if let Some(notification) = self.notification_for(change) {
                let _ = connection.notify(notification, None).await;
            }
        };
        match change {
            Ok(change) => notify(change).await,
            // The receiver lagged behind: the client must reload everything.
            Err(RecvError::Lagged(_)) => {
                for change in [ServiceChange::Tools, ServiceChange::Prompts, ServiceChange::Resources] {
                    notify(&change).await;
                }
                let subscribed =
                    self.state().followed.as_ref().map(|followed| followed.subscriptions.clone());
                for uri in subscribed.into_iter().flatten() {
                    notify(&ServiceChange::Resource { uri, params: None }).await;
                }
            }
            Err(RecvError::Closed) => {}
        }
    }

    /// Returns the notification of a change, if this client wants it.
    fn notification_for(&self, change: &ServiceChange) -> Option<Notification> {
        let mut state = self.state();
        // Before the handshake ends, a client accepts no notifications, and afterwards it asks for the lists.
        state.client.as_ref().filter(|_| state.is_active)?;
        Some(match change {
            ServiceChange::Tools => Notification::new("notifications/tools/list_changed", None),
            ServiceChange::Prompts => Notification::new("notifications/prompts/list_changed", None),
            ServiceChange::Resources => Notification::new("notifications/resources/list_changed", None),
            ServiceChange::Resource { uri, params } => {
                state.followed.as_ref()?.subscriptions.get(uri)?;
                let params =
                    params.clone().unwrap_or_else(RawJson::empty_object).with("uri", &RawJson::of(uri));
                Notification::new("notifications/resources/updated", Some(params))
            }
            ServiceChange::Log(line) => {
                let level = line.get("level").and_then(|level| level.read::<LogLevel>().ok())?;
                if level < state.log_level.unwrap_or(DEFAULT_LOG_LEVEL) {
                    return None;
                }
                Notification::new("notifications/message", Some(line.clone()))
            }
            ServiceChange::ElicitationComplete(params) => {
                let (_, client) = state.client.as_ref()?;
                client.capabilities.at(&["elicitation", "url"])?;
                Notification::new("notifications/elicitation/complete", Some(params.clone()))
            }
            ServiceChange::Custom { method, params } => Notification::new(&**method, params.clone()),
            ServiceChange::Task { id, state: task } => {
                let tasks = &mut state.followed.as_mut()?.tasks;
                tasks.get(id)?;
                let status = task.get("status");
                let status = status.as_ref().and_then(RawJson::text).unwrap_or_default();
                if matches!(&*status, "completed" | "failed" | "cancelled") {
                    tasks.remove(id);
                }
                Notification::new("notifications/tasks/status", Some(task.clone()))
            }
        })
    }
}

impl FollowedItems {
    fn subscribe(&mut self, uri: String) {
        let n_bytes = uri.len();
        if self.subscriptions.insert(uri) {
            self.n_uri_bytes += n_bytes;
        }
    }

    fn unsubscribe(&mut self, uri: &str) {
        if self.subscriptions.remove(uri) {
            self.n_uri_bytes -= uri.len();
        }
    }
}

impl ServerSessionState {
    fn n_uri_bytes(&self) -> usize {
        self.followed.as_ref().map_or(0, |followed| followed.n_uri_bytes)
    }

    fn n_subscriptions(&self) -> usize {
        self.followed.as_ref().map_or(0, |followed| followed.subscriptions.len())
    }

    fn subscribe(&mut self, params: &RawJson) {
        if let Some(uri) = params.get("uri").and_then(|uri| uri.read::<String>().ok()) {
            self.followed.get_or_insert_default().subscribe(uri);
        }
    }

    /// Records the task that a result announces, if any.
    fn track_task(&mut self, result: &RawJson) {
        let id = result.at(&["task", "taskId"]);
        if let Some(id) = id.as_ref().and_then(RawJson::text) {
            let tasks = &mut self.followed.get_or_insert_default().tasks;
            if tasks.len() < MAX_TRACKED_TASKS {
                tasks.insert(id.into_owned());
            }
        }
    }
}

/// Removes the fields of the stateless era from a result. Before it, structured content was an object or
/// absent, and clients reject the whole result otherwise.
fn strip_stateless_fields(result: RawJson) -> RawJson {
    let has_object = result.get("structuredContent").is_none_or(|data| data.is_object());
    let stripped = ["resultType", "ttlMs", "cacheScope", "structuredContent"];
    result.remove(if has_object { &stripped[..3] } else { &stripped })
}

/// Notifies the client of changes until its connection closes.
fn forward_changes(session: &Arc<ServerSession>, connection: &Connection) {
    let Some(mut changes) = session.server.service.changes() else { return };
    let (session, connection) = (Arc::downgrade(session), connection.downgrade());
    tokio::spawn(async move {
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = connection.closed() => return,
            };
            let (Some(session), Some(connection)) = (session.upgrade(), connection.upgrade()) else { return };
            if matches!(change, Err(RecvError::Closed)) {
                return;
            }
            // Boxed, so that the task of an idle session stays small.
            Box::pin(session.forward(&change, &connection)).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::Message;

    /// Parses the parameters of a client with a name and a capability of these sizes.
    fn check(n_name: usize, n_capability: usize, is_accepted: bool) {
        let params = RawJson::from(json!({
            "protocolVersion": "2025-11-25",
            "clientInfo": {"name": "x".repeat(n_name), "version": "1"},
            "capabilities": {"experimental": {"x": "y".repeat(n_capability)}},
        }));
        let Message::Request(request) = Message::request(Id::Number(1), "initialize", Some(params)) else {
            panic!("not a request");
        };
        let parsed = parse_initialize(&request);
        assert_eq!(
            parsed.as_ref().err().map(|error| error.code),
            (!is_accepted).then_some(code::INVALID_PARAMS)
        );
    }

    #[test]
    fn what_a_client_says_about_itself_is_limited() {
        check(10, 10, true);
        check(MAX_DESCRIPTION_BYTES - 200, 10, true);
        check(MAX_DESCRIPTION_BYTES, 10, false);
        check(10, MAX_DESCRIPTION_BYTES, false);
        check(MAX_DESCRIPTION_BYTES / 2, MAX_DESCRIPTION_BYTES / 2, false);
    }

    #[test]
    fn the_length_of_all_subscribed_uris_is_known() {
        let mut followed = FollowedItems::default();
        for uri in ["a:1", "a:1", "b:22"] {
            followed.subscribe(uri.to_owned());
        }
        assert_eq!(followed.n_uri_bytes, 7);
        followed.unsubscribe("a:1");
        followed.unsubscribe("a:1");
        assert_eq!(followed.n_uri_bytes, 4);
    }
}
