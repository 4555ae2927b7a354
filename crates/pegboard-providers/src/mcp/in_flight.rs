//! In-flight calls of one connection, and the routing of requests and notifications from the server to their
//! callers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldhash::HashMap;
use futures_util::future::{BoxFuture, FutureExt, ready};
use parking_lot::Mutex;
use pegboard_core::call::CallContext;
use pegboard_core::client::{
    AskError, Client, ClientSession, InputRequest, InputRequests, Notice, ProgressUpdate,
};
use pegboard_core::error::ProtocolError;
use pegboard_core::extensions::Extensions;
use pegboard_core::id::ServerName;
use pegboard_core::owner::Owner;
use pegboard_core::provider::ProviderUpdate;
use pegboard_json::RawJson;
use pegboard_wire::era::meta;
use pegboard_wire::{Id, InboundHandler, InboundRequest, Notification, Request, RpcError, code};
use tokio::sync::{Notify, watch};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::handle::ServerHandle;
use super::input_tasks::{InputTasks, is_task_method, requested_task};
use super::isolation::UserIsolation;
use super::list::ListKind;
use super::roots::RootsUnion;
use super::updates::ServerUpdates;

/// Key in `_meta` that relates a message to a task of a server with sessions.
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Time limit for finding the call that a server request names: the request can overtake the registration of
/// the call's id.
const CALL_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// In-flight calls of one connection. Clones share them.
#[derive(Clone)]
pub(super) struct InFlightCalls(Arc<InFlightState>);

struct InFlightState {
    calls: Mutex<InFlightTable>,
    /// Notified when an entry changes.
    changed: Notify,
    /// Signals changed lists, in the order of [`ListKind::ALL`].
    changed_lists: [Notify; 4],
    updates: ServerUpdates,
    /// Id of the subscription that the server acknowledged last.
    acknowledged: watch::Sender<Option<Id>>,
    /// Version of the subscriptions that the server knows.
    subscribed_version: watch::Sender<u64>,
    probe_request: Notify,
    isolation: Arc<UserIsolation>,
    server: ServerName,
    /// `true` if the server has declared features that the protocol does not define.
    has_custom_methods: AtomicBool,
    /// Requests of the server that it runs as tasks.
    input_tasks: InputTasks,
    /// The client that the connection belongs to, if it is the only one.
    client: Option<Arc<dyn ClientSession>>,
    /// Roots of all clients that use the connection, if the settings say so.
    roots: Option<Arc<RootsUnion>>,
    /// Requests to the client outside of calls.
    client_requests: watch::Sender<ClientRequestCount>,
}

/// Number of requests to the client of a connection outside of calls.
#[derive(Clone, Copy, Debug, Default)]
struct ClientRequestCount {
    n_received: usize,
    n_pending: usize,
}

/// Counts a request to the client as pending, until dropped.
struct PendingClientRequest<'c>(&'c watch::Sender<ClientRequestCount>);

impl<'c> PendingClientRequest<'c> {
    fn new(count: &'c watch::Sender<ClientRequestCount>) -> Self {
        count.send_modify(|count| {
            count.n_received += 1;
            count.n_pending += 1;
        });
        Self(count)
    }
}

impl Drop for PendingClientRequest<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| count.n_pending -= 1);
    }
}

/// In-flight calls by a local key.
struct InFlightTable {
    next: u64,
    /// No further calls are accepted.
    is_closed: bool,
    entries: HashMap<u64, InFlightCall>,
    /// Time since which there are no entries, if there are none.
    idle_since: Instant,
}

#[derive(Clone)]
struct InFlightCall {
    key: u64,
    kind: InFlightKind,
    client: Option<Arc<dyn Client>>,
    user: CallUser,
    /// Id of the request, once known.
    id: Option<Id>,
    /// Id of the task that the server created for the call.
    task: Option<String>,
    /// Signals of the call, created when one is first awaited.
    signals: Option<Arc<CallSignals>>,
}

/// The user that makes a call.
#[derive(Clone)]
enum CallUser {
    Session(Extensions),
    /// A principal that calls without a session.
    Principal(Option<Owner>),
}

impl CallUser {
    fn of(context: &CallContext) -> Self {
        let tools = context.tools.as_ref();
        match tools.and_then(|tools| tools.extensions()) {
            Some(session) => Self::Session(session.clone()),
            None => Self::Principal(tools.and_then(|tools| tools.owner()).cloned()),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Session(one), Self::Session(other)) => one.is_same(other),
            (Self::Principal(one), Self::Principal(other)) => one.is_some() && one == other,
            (Self::Session(_), Self::Principal(_)) | (Self::Principal(_), Self::Session(_)) => false,
        }
    }
}

/// Signals of a call in flight.
#[derive(Default)]
struct CallSignals {
    /// Notified when the status of the task changes.
    task_change: Notify,
    /// Cancelled when the call ends.
    ended: CancellationToken,
}

/// Kind of an in-flight entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlightKind {
    /// A request to the server.
    Call,
    /// An entry that only keeps the connection from being idle.
    KeepAlive,
}

/// An in-flight call, until dropped.
pub(super) struct InFlightGuard {
    in_flight: InFlightCalls,
    key: u64,
}

impl InFlightTable {
    fn active_calls(&self) -> impl Iterator<Item = &InFlightCall> {
        self.entries.values().filter(|call| call.kind == InFlightKind::Call)
    }
}

impl InFlightGuard {
    /// Records the id of the request on the wire.
    pub(super) fn set_request_id(&self, id: Id) {
        self.update(|call| call.id = Some(id));
    }

    /// Records the id of the task that the server created for the call.
    pub(super) fn set_task_id(&self, id: &str) {
        self.update(|call| call.task = Some(id.to_owned()));
    }

    /// Waits for a status notification about the task; several are coalesced.
    pub(super) async fn task_changed(&self) {
        let mut signals = None;
        self.update(|call| signals = Some(call.signals()));
        if let Some(signals) = signals {
            signals.task_change.notified().await;
        }
    }

    fn update(&self, update: impl FnOnce(&mut InFlightCall)) {
        if let Some(call) = self.in_flight.0.calls.lock().entries.get_mut(&self.key) {
            update(call);
        }
        self.in_flight.0.changed.notify_waiters();
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let ended = {
            let mut calls = self.in_flight.0.calls.lock();
            let ended = calls.entries.remove(&self.key);
            if calls.entries.is_empty() {
                calls.idle_since = Instant::now();
            }
            ended
        };
        if let Some(signals) = ended.and_then(|call| call.signals) {
            signals.ended.cancel();
        }
    }
}

/// The call that a message from the server belongs to.
enum CallMatch {
    One(InFlightCall),
    None,
    Ambiguous,
}

impl InFlightCalls {
    /// Creates the table of a connection to a server.
    pub(super) fn new(handle: &ServerHandle) -> Self {
        Self(Arc::new(InFlightState {
            calls: Mutex::new(InFlightTable {
                next: 0,
                is_closed: false,
                entries: HashMap::default(),
                idle_since: Instant::now(),
            }),
            changed: Notify::new(),
            changed_lists: std::array::from_fn(|_| Notify::new()),
            updates: handle.updates.clone(),
            acknowledged: watch::Sender::default(),
            subscribed_version: watch::Sender::default(),
            probe_request: Notify::new(),
            isolation: Arc::clone(&handle.isolation),
            server: handle.settings.name.clone(),
            client: handle.client.clone(),
            roots: handle.roots.clone(),
            client_requests: watch::Sender::default(),
            has_custom_methods: AtomicBool::new(false),
            input_tasks: InputTasks::default(),
        }))
    }

    /// Passes requests and notifications on that the protocol does not define.
    pub(super) fn permit_custom_methods(&self) {
        self.0.has_custom_methods.store(true, Ordering::Relaxed);
    }

    fn has_custom_methods(&self) -> bool {
        self.0.has_custom_methods.load(Ordering::Relaxed)
    }

    /// Registers a call; `None` if the connection accepts no more.
    pub(super) fn track_call(&self, context: &CallContext) -> Option<InFlightGuard> {
        self.insert(InFlightKind::Call, context.client.clone(), CallUser::of(context))
    }

    /// Registers an entry that keeps the connection from being idle; `None` if the connection accepts no
    /// more.
    pub(super) fn keep_alive(&self) -> Option<InFlightGuard> {
        self.insert(InFlightKind::KeepAlive, None, CallUser::Principal(None))
    }

    fn insert(
        &self,
        kind: InFlightKind,
        client: Option<Arc<dyn Client>>,
        user: CallUser,
    ) -> Option<InFlightGuard> {
        let mut calls = self.0.calls.lock();
        if calls.is_closed {
            return None;
        }
        let key = calls.next;
        calls.next += 1;
        let call = InFlightCall { key, kind, client, user, id: None, task: None, signals: None };
        calls.entries.insert(key, call);
        Some(InFlightGuard { in_flight: self.clone(), key })
    }

    /// Returns `true` if there are no entries.
    pub(super) fn is_idle(&self) -> bool {
        self.0.calls.lock().entries.is_empty()
    }

    /// Returns `true` while a call is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.0.calls.lock().active_calls().next().is_some()
    }

    /// Returns `true` while a call of another session is in flight.
    pub(super) fn is_busy_for_others(&self, session: &Extensions) -> bool {
        let is_own =
            |call: &InFlightCall| matches!(&call.user, CallUser::Session(own) if own.is_same(session));
        self.0.calls.lock().active_calls().any(|call| !is_own(call))
    }

    /// Waits until there have been no entries for `time`. After that no more are accepted.
    pub(super) async fn idle_for(&self, time: Duration) {
        while let Some(next_check) = self.close_if_idle_for(time) {
            time::sleep_until(next_check).await;
        }
    }

    /// Closes the table if there are no entries; returns `true` if there were none.
    pub(super) fn close_if_idle(&self) -> bool {
        self.close_if_idle_for(Duration::ZERO).is_none()
    }

    /// Closes the table if there have been no entries for `time`; otherwise returns the time of the next
    /// check. Calls need not report that they end: what ends now is idle no earlier.
    fn close_if_idle_for(&self, time: Duration) -> Option<Instant> {
        let mut calls = self.0.calls.lock();
        let now = Instant::now();
        let idle_since = if calls.entries.is_empty() { calls.idle_since } else { now };
        calls.is_closed = idle_since + time <= now && calls.entries.is_empty();
        (!calls.is_closed).then_some(idle_since + time)
    }

    /// Records that a list has changed.
    pub(super) fn mark_list_changed(&self, list: ListKind) {
        self.0.changed_lists[list as usize].notify_one();
    }

    /// Waits until a list has changed; several changes are coalesced.
    pub(super) async fn list_changed(&self, list: ListKind) {
        self.0.changed_lists[list as usize].notified().await;
    }

    /// Publishes an update that belongs to no call.
    pub(super) fn publish_update(&self, update: ProviderUpdate) {
        self.0.updates.publish(update);
    }

    /// Waits until the server has acknowledged a subscription.
    pub(super) async fn subscription_acknowledged(&self, subscription: &Id) {
        let mut acknowledged = self.0.acknowledged.subscribe();
        // The sender lives as long as `self`.
        let _ = acknowledged.wait_for(|last| last.as_ref() == Some(subscription)).await;
    }

    /// Records the version of the subscriptions that the server knows.
    pub(super) fn set_subscribed_version(&self, version: u64) {
        self.0.subscribed_version.send_replace(version);
    }

    /// Waits until the server knows this version of the subscriptions.
    pub(super) async fn wait_until_subscribed(&self, version: u64) {
        // The sender lives as long as `self`.
        let _ = self
            .0
            .subscribed_version
            .subscribe()
            .wait_for(|subscribed_version| *subscribed_version >= version)
            .await;
    }

    /// Handles a notification that belongs to no call; returns any other.
    pub(super) fn handle_notification(&self, notification: Notification) -> Option<Notification> {
        let method = &*notification.method;
        match method {
            "notifications/resources/updated" => {
                if let Some(params) = &notification.params {
                    self.publish_update(ProviderUpdate::Resource(without_meta_key(
                        params,
                        meta::SUBSCRIPTION_ID,
                    )));
                }
            }
            "notifications/elicitation/complete" => {
                if let Some(params) = notification.params {
                    self.publish_update(ProviderUpdate::ElicitationComplete(params));
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let id = notification.params.as_ref();
                let id = id.and_then(|params| params.at(&["_meta", meta::SUBSCRIPTION_ID]));
                self.0.acknowledged.send_replace(id.and_then(|id| id.read().ok()));
            }
            "notifications/tasks/status" | "notifications/tasks" => {
                let id = notification.params.as_ref().and_then(|params| params.get("taskId"));
                let id = id.and_then(|id| id.read::<String>().ok());
                let mut calls = self.0.calls.lock();
                let mut calls = calls.entries.values_mut();
                if let Some(call) = calls.find(|call| call.task.is_some() && call.task == id) {
                    call.signals().task_change.notify_one();
                }
            }
            _ => {
                let changed: Vec<ListKind> =
                    ListKind::ALL.into_iter().filter(|list| list.changed_notification() == method).collect();
                if changed.is_empty() {
                    let is_known = is_call_notification(method);
                    return Some(notification).filter(|_| is_known || self.has_custom_methods());
                }
                for list in changed {
                    self.mark_list_changed(list);
                }
            }
        }
        None
    }

    /// Waits until the client has answered what the server asked at its start; returns `true` if it asked anything.
    pub(super) async fn start_requests_answered(&self) -> bool {
        let mut count = self.0.client_requests.subscribe();
        // The sender lives as long as `self`.
        count.wait_for(|count| count.n_pending == 0).await.is_ok_and(|count| count.n_received > 0)
    }

    /// Requests a liveness probe.
    pub(super) fn request_probe(&self) {
        self.0.probe_request.notify_one();
    }

    /// Waits until a liveness probe is requested.
    pub(super) async fn probe_requested(&self) {
        self.0.probe_request.notified().await;
    }

    /// Finds the call that a message belongs to, given the request it is related to, if any.
    fn match_call(&self, related: Option<&Id>) -> CallMatch {
        let calls = self.0.calls.lock();
        if related.is_some() {
            // A message about an ended call goes to no other call.
            let call = calls.active_calls().find(|call| call.id.as_ref() == related);
            return call.cloned().map_or(CallMatch::None, CallMatch::One);
        }
        let Some(latest) = calls.active_calls().max_by_key(|call| call.key) else { return CallMatch::None };
        // A caller without a client may be the one that is meant.
        let is_other = |call: &InFlightCall| {
            call.key != latest.key
                && (!call.user.is_same(&latest.user) || call.client.is_some() != latest.client.is_some())
        };
        if calls.active_calls().any(is_other) {
            return CallMatch::Ambiguous;
        }
        // Each call reaches the client. One that has just started is the likeliest to ask.
        CallMatch::One(latest.clone())
    }

    /// Waits briefly until the call with this request id is registered.
    async fn wait_for_request_id(&self, related: Option<&Id>) {
        if related.is_some() {
            // On timeout the call has ended.
            self.find_call(|call| call.id.as_ref() == related).await;
        }
    }

    /// Returns the first call that fits. Waits briefly until there is one.
    async fn find_call(&self, fits: impl Fn(&InFlightCall) -> bool) -> Option<InFlightCall> {
        let finding = async {
            loop {
                let mut changed = pin!(self.0.changed.notified());
                changed.as_mut().enable();
                let found = self.0.calls.lock().active_calls().find(|call| fits(call)).cloned();
                match found {
                    Some(call) => return call,
                    None => changed.await,
                }
            }
        };
        time::timeout(CALL_LOOKUP_TIMEOUT, finding).await.ok()
    }

    /// Returns the call of a task. Waits briefly, because the request may overtake the registration of the
    /// task.
    async fn find_task_call(&self, id: &str) -> Option<InFlightCall> {
        self.find_call(|call| call.task.as_deref() == Some(id)).await
    }

    /// Returns the signals of a call; `None` if it has ended.
    fn signals_of(&self, key: u64) -> Option<Arc<CallSignals>> {
        self.0.calls.lock().entries.get_mut(&key).map(InFlightCall::signals)
    }

    async fn handle_request(self, inbound: InboundRequest) -> Result<RawJson, RpcError> {
        let InboundRequest { request, related_request: related, .. } = inbound;
        let task = request.params.as_ref().and_then(|params| params.at(&["_meta", RELATED_TASK, "taskId"]));
        if let Some(task) = task.as_ref().and_then(RawJson::text)
            && let Some(call) = self.find_task_call(&task).await
        {
            return self.forward_to_caller(&call, request).await;
        }
        self.wait_for_request_id(related.as_ref()).await;
        let is_roots = &*request.method == "roots/list";
        if related.is_none() && !is_roots {
            self.0.isolation.require();
        }
        let matched = self.match_call(related.as_ref());
        if let Some(client) = &self.0.client
            && related.is_none()
            && (is_roots || matches!(matched, CallMatch::None))
        {
            let _pending = PendingClientRequest::new(&self.0.client_requests);
            let question = question_of(request);
            let method = question.method.clone();
            return answer_or_empty_roots(client.ask(question).await, &method);
        }
        if let Some(union) = self.0.roots.as_ref().filter(|_| is_roots && related.is_none()) {
            let _pending = PendingClientRequest::new(&self.0.client_requests);
            return Ok(union.list().await);
        }
        // Servers also request roots on their own account. That must not suspend a call.
        if is_roots
            && related.is_none()
            && !matches!(&matched, CallMatch::One(call) if call.accepts_requests_during_call())
        {
            self.0.isolation.report_refused_roots(&self.0.server, self.0.updates.log());
            return Ok(empty_roots());
        }
        match matched {
            CallMatch::One(call) if call.client.is_some() => self.forward_to_caller(&call, request).await,
            CallMatch::One(_) | CallMatch::None if is_roots => Ok(empty_roots()),
            CallMatch::One(_) | CallMatch::None => Err(unanswered("it belongs to no call in flight")),
            CallMatch::Ambiguous => {
                self.0.isolation.report_split(&self.0.server);
                Err(unanswered(
                    "calls of several clients are in flight and it does not name one; set `shared: false` for the server",
                ))
            }
        }
    }
}

impl InFlightCall {
    /// Returns the signals of the call.
    fn signals(&mut self) -> Arc<CallSignals> {
        Arc::clone(self.signals.get_or_insert_default())
    }

    /// Returns `true` if the caller can answer requests while its call is in flight.
    fn accepts_requests_during_call(&self) -> bool {
        self.client.as_ref().is_some_and(|client| !client.needs_input_rounds())
    }
}

impl InFlightCalls {
    /// Forwards a server request to the caller and returns its answer, or the task that will have it.
    async fn forward_to_caller(&self, call: &InFlightCall, request: Request) -> Result<RawJson, RpcError> {
        let Some(lifetime) = requested_task(&request) else { return self.ask_and_wait(call, request).await };
        let (in_flight, call) = (self.clone(), call.clone());
        let asking = async move { in_flight.ask_and_wait(&call, request).await }.boxed();
        self.0.input_tasks.create(lifetime, asking)
    }

    /// Forwards a server request to the caller and returns its answer.
    async fn ask_and_wait(&self, call: &InFlightCall, request: Request) -> Result<RawJson, RpcError> {
        let method = Arc::clone(&request.method);
        answer_or_empty_roots(self.ask_caller(call, question_of(request)).await, &method)
    }

    /// Asks the caller one question while its call is in flight.
    async fn ask_caller(&self, call: &InFlightCall, question: InputRequest) -> Result<RawJson, AskError> {
        let client = call.client.as_ref().ok_or(AskError::Unsupported)?;
        let name = question.method.clone();
        let questions = InputRequests::from_iter([(name.clone(), question)]);
        let signals = self.signals_of(call.key).ok_or(AskError::Gone)?;
        let asked = signals.ended.run_until_cancelled(client.ask(questions));
        let mut answers = asked.await.ok_or(AskError::Gone)??;
        answers.swap_remove(&name).ok_or_else(|| AskError::refused("it did not answer the request"))
    }
}

fn question_of(request: Request) -> InputRequest {
    let params = request.params.unwrap_or_else(RawJson::empty_object);
    let params = without_meta_key(&params, RELATED_TASK).without("task");
    InputRequest { method: request.method.to_string(), params }
}

/// Returns the answer of a client. One that cannot be asked has no roots either.
fn answer_or_empty_roots(answer: Result<RawJson, AskError>, method: &str) -> Result<RawJson, RpcError> {
    match answer {
        Err(AskError::Unsupported) if method == "roots/list" => Ok(empty_roots()),
        Err(AskError::Unsupported) if !is_input_method(method) => Err(RpcError::method_not_found(method)),
        Err(AskError::Refused(refusal)) => Err(refused(*refusal)),
        answer => answer.map_err(|error| unanswered(&error.to_string())),
    }
}

fn empty_roots() -> RawJson {
    RawJson::of(&serde_json::json!({"roots": []}))
}

/// Returns the caller's own error.
fn refused(ProtocolError { code, message, data }: ProtocolError) -> RpcError {
    let error = RpcError::new(code, message);
    match data {
        Some(data) => error.with_data(data),
        None => error,
    }
}

fn unanswered(why: &str) -> RpcError {
    RpcError::new(code::INTERNAL_ERROR, format!("The request cannot be answered: {why}"))
}

impl InboundHandler for InFlightCalls {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let method = &*inbound.request.method;
        if is_task_method(method) {
            let tasks = self.0.input_tasks.clone();
            return async move { tasks.answer(inbound.request).await }.boxed();
        }
        if is_input_method(method) || self.has_custom_methods() && method != "ping" {
            return self.clone().handle_request(inbound).boxed();
        }
        ready(Err(RpcError::method_not_found(method))).boxed()
    }

    fn notification(&self, notification: Notification, related: Option<Id>) {
        let Some(notification) = self.handle_notification(notification) else { return };
        // The notification may overtake progress that the call has not read yet. Where each call has its own
        // stream, notifications do not arrive here.
        match (self.match_call(related.as_ref()), &*notification.method, notification.params.as_ref()) {
            (CallMatch::One(InFlightCall { client: Some(client), .. }), ..) => {
                notify_caller(&*client, notification);
            }
            (CallMatch::None, "notifications/message", Some(params)) if related.is_none() => {
                self.publish_update(ProviderUpdate::Log(params.clone()));
            }
            (CallMatch::None, method, params) if related.is_none() && !is_call_notification(method) => {
                let (method, params) = (Arc::clone(&notification.method), params.cloned());
                self.publish_update(ProviderUpdate::Custom { method, params });
            }
            // A log message that may belong to one caller is not sent to another.
            (CallMatch::One(_) | CallMatch::None | CallMatch::Ambiguous, ..) => {}
        }
    }
}

/// Returns the object without one key of its `_meta`.
pub(super) fn without_meta_key(object: &RawJson, key: &str) -> RawJson {
    let Some(meta) = object.get("_meta").filter(|meta| meta.get(key).is_some()) else {
        return object.clone();
    };
    let rest = meta.without(key);
    if rest.names().is_empty() { object.without("_meta") } else { object.with("_meta", &rest) }
}

/// Returns `true` for the requests to clients that the protocol defines.
fn is_input_method(method: &str) -> bool {
    matches!(method, "elicitation/create" | "sampling/createMessage" | "roots/list")
}

/// Returns `true` for the notifications about calls that the protocol defines.
fn is_call_notification(method: &str) -> bool {
    matches!(method, "notifications/progress" | "notifications/message")
}

/// Passes a notification about a call to its caller.
pub(super) fn notify_caller(client: &dyn Client, notification: Notification) {
    let Notification { method, params, .. } = notification;
    let params = params.map(|params| without_meta_key(&params, RELATED_TASK));
    match (&*method, params) {
        ("notifications/progress", Some(params)) => {
            let number = |name: &str| params.get(name).and_then(|number| number.read::<f64>().ok());
            if let Some(done) = number("progress") {
                let message = params.get("message").and_then(|message| message.read().ok());
                let total = number("total");
                client.notify(Notice::Progress(ProgressUpdate {
                    done,
                    total,
                    message,
                    params: Some(params),
                }));
            }
        }
        ("notifications/message", Some(params)) => client.notify(Notice::Log(params)),
        ("notifications/progress" | "notifications/message", None) => {}
        (_, params) => client.notify(Notice::Custom { method, params }),
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::client::InputResponses;
    use pegboard_core::owner::Principals;
    use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer};

    use super::*;

    #[derive(Default)]
    struct NoticeRecorder(Mutex<Vec<Notice>>);

    impl Client for NoticeRecorder {
        fn notify(&self, notice: Notice) {
            self.0.lock().push(notice);
        }

        fn ask(&self, _: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
            ready(Err(AskError::Unsupported)).boxed()
        }
    }

    #[test]
    fn notifications_of_a_call_keep_every_member() {
        let progress = r#"{"progress": 1.0, "total":2e0, "own":[1], "_meta":{"a/b":1}}"#;
        let log = r#"{"level":"info", "data":1.50, "_meta":{"a":{}}, "own":null}"#;
        let recorder = NoticeRecorder::default();
        for (method, params) in [("notifications/progress", progress), ("notifications/message", log)] {
            let params = RawJson::parse(params.into()).unwrap();
            notify_caller(&recorder, Notification::new(method, Some(params)));
        }
        let notices = recorder.0.into_inner();
        let [Notice::Progress(update), Notice::Log(line)] = &notices[..] else { panic!("{notices:?}") };
        assert_eq!(update.params.as_ref().unwrap().as_str(), progress);
        assert_eq!((update.done, update.total, line.as_str()), (1.0, Some(2.0), log));
    }

    #[test]
    fn a_message_about_an_ended_call_goes_to_no_other_call() {
        let settings = ResolvedMcpServer::new(ServerName::new("test").unwrap(), McpTarget::Embedded);
        let in_flight = InFlightCalls::new(&ServerHandle::new(settings, Principals::default()));
        let context = CallContext::default();
        let (first, second) =
            (in_flight.track_call(&context).unwrap(), in_flight.track_call(&context).unwrap());
        first.set_request_id(Id::Number(1));
        second.set_request_id(Id::Number(2));
        let is_found = |id| matches!(in_flight.match_call(Some(&Id::Number(id))), CallMatch::One(_));
        assert_eq!([is_found(1), is_found(2), is_found(3)], [true, true, false]);
        drop(first);
        assert_eq!([is_found(1), is_found(2)], [false, true]);
        assert!(matches!(in_flight.match_call(None), CallMatch::One(_)));
    }
}
