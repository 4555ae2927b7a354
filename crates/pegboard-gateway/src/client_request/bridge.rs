//! Bridges notifications and input requests of a running tool to its client.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready, try_join_all};
use parking_lot::Mutex;
use pegboard_core::call::{CallHandle, CallResult};
use pegboard_core::client::{
    AskError, Client, ClientMeta, ClientSession, InputRequest, InputRequests, InputResponses, Notice,
    ProgressUpdate, SamplingSupport,
};
use pegboard_core::error::ProtocolError;
use pegboard_core::task::{ServerTask, TaskMode, TaskRefresher};
use pegboard_json::RawJson;
use pegboard_runtime::event::{NotificationDropReason, RuntimeEvent};
use pegboard_runtime::random;
use pegboard_wire::era::{Era, LogLevel};
use pegboard_wire::server::{ClientCapability, ClientDescription, ClientSessionId, Peer};
use pegboard_wire::{RequestError, RpcError};
use tokio::sync::{Notify, oneshot};
use tokio::time;

use super::ClientRequest;
use super::notice_queue::NoticeQueue;
use super::session_peer::SessionPeer;
use crate::profile::ActiveProfile;

/// Maximum time to flush notices before the result is sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of tools of one call that wait for input at a time.
const MAX_PENDING_INPUTS: usize = 64;
/// Member that identifies a URL elicitation.
const ELICITATION_ID: &str = "elicitationId";
/// Requests to clients that the protocol defines.
const INPUT_METHODS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];
/// Time for which a question that the client cannot be asked is not refused, so that others of the same moment are asked.
const REFUSAL_DELAY: Duration = Duration::from_millis(100);
/// Time window in which input requests are batched.
const BATCH_WINDOW: Duration = Duration::from_millis(20);

/// The client of one call, which may span several requests.
pub(crate) struct ClientBridge {
    client: Arc<ClientDescription>,
    label: Option<Arc<str>>,
    meta: ClientMeta,
    /// Answers sent with the request before they were asked for.
    early_answers: Mutex<Option<RawJson>>,
    /// Capability that the client lacked when it was asked.
    missing_capability: OnceLock<ClientCapability>,
    task_mode: TaskMode,
    era: Era,
    profile: Arc<ActiveProfile>,
    session: Option<ClientSessionId>,
    delivery: InputDelivery,
    events: Mutex<BridgeEvents>,
    /// Notified when a pending input is taken.
    has_space: Notify,
    /// Notified when an input request is answered or given up.
    answered: Notify,
}

/// Events of the running tool that its driver has not handled yet.
#[derive(Default)]
struct BridgeEvents {
    /// Notices for the client. Those of a suspended call wait for the next request of the client.
    notices: NoticeQueue,
    is_listening: bool,
    /// Task that a server has created for the call.
    server_task: Option<ServerTask>,
    /// Input requests for the next reply.
    inputs: VecDeque<PendingInput>,
    /// Number of input requests that the client has yet to answer.
    n_unanswered: usize,
    driver: Option<Waker>,
}

impl BridgeEvents {
    fn wake(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    fn wait(&mut self, context: &Context<'_>) {
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(context.waker())) {
            self.driver = Some(context.waker().clone());
        }
    }
}

/// Delivery of input requests to the client.
enum InputDelivery {
    /// As requests, during the client's own request.
    Direct(Peer),
    /// In an `input_required` reply, after which the client sends its request again. The peer is that of the request
    /// that it waits for at the moment.
    InRounds(Mutex<Option<Peer>>),
}

/// Input requests of one tool, and the channel for the responses.
#[derive(Debug)]
struct PendingInput {
    questions: InputRequests,
    answers: oneshot::Sender<InputResponses>,
}

/// Input requests of several tools, each under a unique name.
#[derive(Debug)]
pub(crate) struct InputBatch(Vec<(PendingInput, Vec<String>)>);

/// Result of driving a call.
pub(crate) enum CallStep {
    /// The call has finished.
    Finished(Box<CallResult>),
    /// The client must provide input first.
    InputRequired(CallHandle, InputBatch),
    /// A server has created a task, and the client supports tasks.
    Task(CallHandle, ServerTask),
}

/// The event that ends a drive.
enum DriverEvent {
    Finished(Box<CallResult>),
    Task(ServerTask),
    Input(PendingInput),
}

/// An event of a call that runs as a task.
pub(crate) enum TaskEvent {
    /// Status message for people.
    Message(String),
    /// Input required.
    InputRequired(InputBatch),
    /// A server runs the call as a task, too.
    ServerTask(TaskRefresher),
}

impl ClientBridge {
    /// Creates the bridge to the client of a request.
    pub(super) fn new(request: &ClientRequest) -> Arc<Self> {
        let task_mode = request.task_mode();
        // The client of a task is asked when it polls the task.
        let is_waiting = !matches!(task_mode, TaskMode::Requested(_));
        let delivery = if request.peer.supports_requests() && is_waiting {
            InputDelivery::Direct(request.peer.clone())
        } else {
            InputDelivery::InRounds(Mutex::default())
        };
        Arc::new(Self {
            client: Arc::clone(&request.client),
            label: request.label.clone(),
            meta: request.meta.clone(),
            early_answers: Mutex::new(request.answers.clone()),
            missing_capability: OnceLock::new(),
            task_mode,
            era: request.era,
            profile: Arc::clone(&request.profile),
            session: request.session.clone(),
            delivery,
            events: Mutex::default(),
            has_space: Notify::new(),
            answered: Notify::new(),
        })
    }

    /// Drives a call until it finishes or needs input that only the next request can bring. Notices are
    /// forwarded in order, and all of them before the result.
    pub(super) async fn drive(&self, mut running: CallHandle, peer: &Peer) -> CallStep {
        self.set_listening(true);
        self.set_current_request(Some(peer));
        let mut forwarding = pin!(self.forward_notices(peer).fuse());
        let step = poll_fn(|context| {
            if let Poll::Ready(call_result) = running.poll_unpin(context) {
                return Poll::Ready(DriverEvent::Finished(Box::new(call_result)));
            }
            if let Poll::Ready(event) = self.poll_event(context) {
                return Poll::Ready(event);
            }
            let _ = forwarding.as_mut().poll(context);
            Poll::Pending
        });
        let step = match step.await {
            // A task that ends at once is still one, as the client of its server expects.
            DriverEvent::Finished(call_result) => match self.take_accepted_task() {
                Some(task) => CallStep::Task(CallHandle::new(ready(*call_result)), task),
                None => CallStep::Finished(call_result),
            },
            DriverEvent::Task(task) => CallStep::Task(running, task),
            // Boxed like all that few calls need, so that the future of every other call stays small.
            DriverEvent::Input(input) => {
                CallStep::InputRequired(running, Box::pin(self.gather_inputs(input)).await)
            }
        };
        self.set_listening(false);
        if (&mut forwarding).now_or_never().is_none() {
            // A client that has stopped reading must not block its own result.
            let _ = Box::pin(time::timeout(FLUSH_TIMEOUT, forwarding)).await;
        }
        self.set_current_request(None);
        step
    }

    /// Records the request that a client without a session waits for, and may cancel.
    fn set_current_request(&self, peer: Option<&Peer>) {
        if let InputDelivery::InRounds(current) = &self.delivery {
            *current.lock() = peer.cloned();
        }
    }

    /// Drives a call that runs as a task until it finishes.
    pub(crate) async fn drive_task(
        &self,
        mut running: CallHandle,
        mut on_event: impl FnMut(TaskEvent),
    ) -> CallResult {
        self.set_listening(true);
        loop {
            tokio::select! {
                biased;
                call_result = &mut running => return call_result,
                refresher = poll_fn(|context| self.poll_refresher(context)) => {
                    on_event(TaskEvent::ServerTask(refresher));
                }
                input = self.next_input() => on_event(TaskEvent::InputRequired(InputBatch::new(vec![input]))),
                Some(notice) = poll_fn(|context| self.poll_notice(context)) => {
                    if let Notice::Progress(progress) = notice
                        && let Some(message) = self.with_label(progress.message)
                    {
                        on_event(TaskEvent::Message(message));
                    }
                }
            }
        }
    }

    /// Returns the next event that ends the drive, other than the end of the call.
    fn poll_event(&self, context: &Context<'_>) -> Poll<DriverEvent> {
        let mut events = self.events.lock();
        if self.task_mode == TaskMode::Accepted
            && let Some(task) = &events.server_task
        {
            return Poll::Ready(DriverEvent::Task(task.clone()));
        }
        if let Some(input) = events.inputs.pop_front() {
            self.has_space.notify_one();
            return Poll::Ready(DriverEvent::Input(input));
        }
        events.wait(context);
        Poll::Pending
    }

    /// Takes the task that the server has created, if the client accepts tasks.
    fn take_accepted_task(&self) -> Option<ServerTask> {
        if self.task_mode != TaskMode::Accepted {
            return None;
        }
        self.events.lock().server_task.take()
    }

    /// Takes the refresher of the server's task, once there is one.
    fn poll_refresher(&self, context: &Context<'_>) -> Poll<TaskRefresher> {
        let mut events = self.events.lock();
        if let Some(refresher) = events.server_task.as_mut().and_then(|task| task.refresher.take()) {
            return Poll::Ready(refresher);
        }
        events.wait(context);
        Poll::Pending
    }

    /// Returns the next notice; `None` when the client has stopped listening and has all that came before.
    fn poll_notice(&self, context: &Context<'_>) -> Poll<Option<Notice>> {
        let mut events = self.events.lock();
        if !events.is_listening {
            return Poll::Ready(events.notices.pop_final());
        }
        let next = events.notices.pop_front();
        if next.is_some() {
            return Poll::Ready(next);
        }
        events.wait(context);
        Poll::Pending
    }

    /// Waits for the next input request that goes into a reply.
    async fn next_input(&self) -> PendingInput {
        poll_fn(|context| {
            let mut events = self.events.lock();
            if let Some(input) = events.inputs.pop_front() {
                self.has_space.notify_one();
                return Poll::Ready(input);
            }
            events.wait(context);
            Poll::Pending
        })
        .await
    }

    /// Collects input requests that arrive within the batch window, to save the client round trips.
    async fn gather_inputs(&self, first: PendingInput) -> InputBatch {
        let mut all = vec![first];
        while all.len() < MAX_PENDING_INPUTS
            && let Ok(input) = time::timeout(BATCH_WINDOW, self.next_input()).await
        {
            all.push(input);
        }
        InputBatch::new(all)
    }

    /// Waits until the client has answered what it is asked at the moment. A server that is refused one of several
    /// answers may end the call, and with it the others.
    async fn inputs_answered(&self) {
        time::sleep(REFUSAL_DELAY).await;
        loop {
            let mut answered = pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.events.lock().n_unanswered == 0 {
                return;
            }
            answered.await;
        }
    }

    /// Queues input requests for the next reply.
    async fn queue_input(&self, input: PendingInput) {
        loop {
            let mut has_space = pin!(self.has_space.notified());
            // Each of several waiting tools is woken for a place of its own.
            has_space.as_mut().enable();
            {
                let mut events = self.events.lock();
                if events.inputs.len() < MAX_PENDING_INPUTS {
                    events.inputs.push_back(input);
                    return events.wake();
                }
            }
            has_space.await;
        }
    }

    /// Discards the server's task: the task table is full, so the client waits for the result.
    pub(super) fn decline_task(&self) {
        self.events.lock().server_task = None;
    }

    async fn forward_notices(&self, peer: &Peer) {
        while let Some(notice) = poll_fn(|context| self.poll_notice(context)).await {
            // Boxed like all that few calls need, so that the future of every other call stays small.
            Box::pin(self.forward_notice(peer, notice)).await;
        }
    }

    async fn forward_notice(&self, peer: &Peer, notice: Notice) {
        match notice {
            Notice::Progress(ProgressUpdate { done, total, message, params }) => {
                match (params, &self.label) {
                    (Some(params), None) => peer.forward_progress(&params).await,
                    (Some(params), Some(_)) => {
                        let message = RawJson::of(&self.with_label(message));
                        peer.forward_progress(&params.with("message", &message)).await;
                    }
                    (None, _) => peer.progress(done, total, self.with_label(message).as_deref()).await,
                }
            }
            Notice::Log(params) => {
                let params = match &self.label {
                    Some(label) if params.get("logger").is_none() => {
                        params.with("logger", &RawJson::of(&**label))
                    }
                    Some(_) | None => params,
                };
                forward_log(peer, params).await;
            }
            Notice::Custom { method, params } => {
                peer.notify(&method, params.unwrap_or_else(RawJson::empty_object)).await;
            }
            // Handled in `notify`.
            Notice::Task(_) => {}
        }
    }

    /// Adds the tool's name to a progress message if the client called it through another tool.
    fn with_label(&self, message: Option<String>) -> Option<String> {
        match (&self.label, message) {
            (None, message) => message,
            (Some(label), None) => Some(label.to_string()),
            (Some(label), Some(message)) => Some(format!("{label}: {message}")),
        }
    }

    fn set_listening(&self, is_listening: bool) {
        let mut events = self.events.lock();
        events.is_listening = is_listening;
        events.notices.finish();
    }

    /// Returns the capability that the client lacks to answer a question.
    fn missing_capability_for(&self, question: &InputRequest) -> Option<ClientCapability> {
        self.client.missing_capability(&question.method, Some(&question.params))
    }

    /// Adapts input requests to the client's era: only session clients use elicitation ids.
    fn adapt_to_era(&self, mut questions: InputRequests) -> InputRequests {
        let has_session = self.has_session();
        for InputRequest { params, .. } in
            questions.values_mut().filter(|question| is_url_elicitation(question))
        {
            match (has_session, params.get(ELICITATION_ID)) {
                (true, None) => {
                    *params = params.with(ELICITATION_ID, &RawJson::of(&random::uuid().to_string()));
                }
                (false, Some(_)) => *params = params.without(ELICITATION_ID),
                (true, Some(_)) | (false, None) => {}
            }
        }
        questions
    }

    /// Returns the capability that the client lacked when it was asked.
    pub(super) fn missing_capability(&self) -> Option<ClientCapability> {
        self.missing_capability.get().copied()
    }

    /// Takes the answers that the client sent before it was asked.
    fn take_early_answers(&self, questions: &InputRequests) -> Option<InputResponses> {
        let mut early_answers = self.early_answers.lock();
        let given = early_answers.as_ref()?;
        let answers = questions.keys().map(|name| Some((name.clone(), given.get(name)?)));
        let answers = answers.collect::<Option<InputResponses>>()?;
        *early_answers = None;
        Some(answers)
    }
}

impl Client for ClientBridge {
    fn notify(&self, notice: Notice) {
        let mut events = self.events.lock();
        let is_listening = events.is_listening;
        let n_dropped = match notice {
            Notice::Task(task) => {
                events.server_task = Some(task);
                0
            }
            notice => events.notices.push(notice, is_listening),
        };
        events.wake();
        drop(events);
        if n_dropped > 0 {
            let reason = if is_listening {
                NotificationDropReason::SlowReader
            } else {
                NotificationDropReason::NoReader
            };
            let events = self.profile.runtime.events();
            events.emit(|| RuntimeEvent::NotificationsDropped { n_notifications: n_dropped, reason });
        }
    }

    fn request_meta(&self) -> Option<&ClientMeta> {
        Some(&self.meta)
    }

    fn cancel_reason(&self) -> Option<RawJson> {
        match &self.delivery {
            InputDelivery::Direct(peer) => peer.cancel_reason(),
            InputDelivery::InRounds(peer) => peer.lock().as_ref()?.cancel_reason(),
        }
    }

    fn needs_input_rounds(&self) -> bool {
        matches!(self.delivery, InputDelivery::InRounds(_))
    }

    fn has_session(&self) -> bool {
        self.era == Era::Session
    }

    fn session(&self) -> Option<Arc<dyn ClientSession>> {
        let InputDelivery::Direct(peer) = &self.delivery else { return None };
        let watch = self.profile.watched_sessions.watch(self.session.as_ref()?);
        let capabilities = self.meta.capabilities.clone().unwrap_or_else(RawJson::empty_object);
        let (peer, client, events) =
            (peer.clone(), Arc::clone(&self.client), self.profile.runtime.events().clone());
        Some(Arc::new(SessionPeer { peer, client, capabilities, watch, events, outbox: Arc::default() }))
    }

    fn task_mode(&self) -> TaskMode {
        self.task_mode
    }

    fn sampling_support(&self) -> SamplingSupport {
        match self.client.capabilities.get("sampling") {
            None => SamplingSupport::None,
            Some(sampling) if sampling.get("tools").is_some() => SamplingSupport::Tools,
            Some(_) => SamplingSupport::Text,
        }
    }

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            if let Some(capability) =
                questions.values().find_map(|question| self.missing_capability_for(question))
            {
                self.missing_capability.get_or_init(|| capability);
                if self.needs_input_rounds() {
                    self.inputs_answered().await;
                }
                return Err(AskError::Unsupported);
            }
            let questions = self.adapt_to_era(questions);
            match &self.delivery {
                InputDelivery::Direct(peer) => ask_peer(peer, questions).await,
                // Input requests of the stateless era are those that the protocol defines.
                InputDelivery::InRounds(_)
                    if questions.values().any(|question| !INPUT_METHODS.contains(&&*question.method)) =>
                {
                    Err(AskError::Unsupported)
                }
                InputDelivery::InRounds(_) => {
                    if let Some(answers) = self.take_early_answers(&questions) {
                        return Ok(answers);
                    }
                    let _unanswered = UnansweredInput::new(self);
                    let (sender, receiver) = oneshot::channel();
                    self.queue_input(PendingInput { questions, answers: sender }).await;
                    receiver.await.map_err(|_| AskError::Gone)
                }
            }
        }
        .boxed()
    }
}

/// Counts an input request until it is answered or given up.
struct UnansweredInput<'b>(&'b ClientBridge);

impl<'b> UnansweredInput<'b> {
    fn new(bridge: &'b ClientBridge) -> Self {
        bridge.events.lock().n_unanswered += 1;
        Self(bridge)
    }
}

impl Drop for UnansweredInput<'_> {
    fn drop(&mut self) {
        self.0.events.lock().n_unanswered -= 1;
        self.0.answered.notify_waiters();
    }
}

/// Returns `true` if a question is a URL elicitation.
fn is_url_elicitation(question: &InputRequest) -> bool {
    let mode = question.params.get("mode");
    question.method == "elicitation/create" && mode.is_some_and(|mode| mode.text().as_deref() == Some("url"))
}

/// Sends a log message to a client, if it wants this level.
pub(super) async fn forward_log(peer: &Peer, params: RawJson) {
    let level = params.get("level").and_then(|level| level.read::<LogLevel>().ok());
    peer.forward_log(level.unwrap_or(LogLevel::Info), params).await;
}

/// Sends all input requests to a session client concurrently.
async fn ask_peer(peer: &Peer, questions: InputRequests) -> Result<InputResponses, AskError> {
    let requests = questions.into_iter().map(|(name, question)| async move {
        let answer = peer.request(&question.method, Some(question.params)).await;
        Ok((name, answer.map_err(ask_error)?))
    });
    Ok(try_join_all(requests).await?.into_iter().collect())
}

/// Converts the failure of a request to a client.
pub(super) fn ask_error(failure: RequestError) -> AskError {
    match failure {
        RequestError::Rpc(RpcError { code, message, data, .. }) => {
            AskError::Refused(Box::new(ProtocolError { code, message, data }))
        }
        RequestError::Transport(_) | RequestError::Overloaded => AskError::Gone,
    }
}

impl InputBatch {
    fn new(all: Vec<PendingInput>) -> Self {
        let mut taken = HashSet::new();
        let named = all.into_iter().map(|input| {
            let names = input.questions.keys().map(|name| {
                let mut free = name.clone();
                for number in 2.. {
                    if taken.insert(free.clone()) {
                        break;
                    }
                    free = format!("{name}-{number}");
                }
                free
            });
            let names = names.collect();
            (input, names)
        });
        Self(named.collect())
    }

    /// Iterates over all questions with their names.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (&String, &InputRequest)> {
        self.0.iter().flat_map(|(input, names)| names.iter().zip(input.questions.values()))
    }

    /// Returns the questions as MCP input requests.
    pub(super) fn as_json(&self) -> RawJson {
        self.questions().fold(RawJson::empty_object(), |all, (name, question)| {
            let request = RawJson::empty_object()
                .with("method", &RawJson::of(&question.method))
                .with("params", &question.params);
            all.with(name, &request)
        })
    }

    /// Delivers all answers to the tools.
    pub(crate) fn finish(self, mut answers: InputResponses) {
        for (PendingInput { questions, answers: sender }, names) in self.0 {
            let given = questions.into_keys().zip(&names);
            let given = given.filter_map(|(own, name)| Some((own, answers.swap_remove(name)?)));
            // A tool that has given up meanwhile ignores them.
            let _ = sender.send(given.collect());
        }
    }

    /// Returns the name of a question without an answer.
    pub(super) fn unanswered(&self, answers: Option<&RawJson>) -> Option<&str> {
        let is_answered = |name: &String| answers.is_some_and(|answers| answers.get(name).is_some());
        self.questions().map(|(name, _)| name).find(|name| !is_answered(name)).map(String::as_str)
    }

    /// Delivers the answers to the tools.
    pub(super) fn answer(self, answers: Option<&RawJson>) {
        let answer = |name: &String| Some((name.clone(), answers?.get(name)?));
        let answers = self.questions().filter_map(|(name, _)| answer(name)).collect();
        self.finish(answers);
    }
}
