//! Subscriber of a call's event stream: receives notifications and questions of the tool, and delivers
//! answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::{Mutex, MutexGuard};
use pegboard_core::client::{
    AskError, Client, ClientMeta, InputRequest, InputRequests, InputResponses, Notice,
};
use pegboard_core::owner::Owner;
use pegboard_json::RawJson;
use pegboard_runtime::{CallId, CallStarted};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::api::problem::ApiProblem;
use crate::api::stream::StreamItem;

/// The only method that a subscriber can be asked.
const ELICITATION_METHOD: &str = "elicitation/create";

/// Capabilities and log level that servers see for a subscriber: it supports form and URL elicitation and
/// reads the log.
static CLIENT_META: LazyLock<ClientMeta> = LazyLock::new(|| ClientMeta {
    capabilities: Some(RawJson::from(json!({"elicitation": {"form": {}, "url": {}}}))),
    log_level: Some(RawJson::of("info")),
    custom: None,
});

/// Calls with a subscriber, by call id.
#[derive(Default)]
pub(in crate::api) struct CallSubscribers(Mutex<HashMap<CallId, Arc<CallSubscriber>>>);

impl CallSubscribers {
    /// Returns the subscriber of a call.
    pub(super) fn get(&self, call: CallId) -> Option<Arc<CallSubscriber>> {
        self.0.lock().get(&call).cloned()
    }

    /// Creates a guard that registers a subscriber as soon as its call has an id.
    pub(super) fn register(
        self: &Arc<Self>,
        subscriber: Arc<CallSubscriber>,
        start_info: Arc<OnceLock<CallStarted>>,
    ) -> SubscriberGuard {
        SubscriberGuard { subscribers: Arc::clone(self), subscriber, start_info }
    }
}

/// Registration of a subscriber. Dropping it removes the subscriber.
pub(super) struct SubscriberGuard {
    subscribers: Arc<CallSubscribers>,
    subscriber: Arc<CallSubscriber>,
    start_info: Arc<OnceLock<CallStarted>>,
}

impl SubscriberGuard {
    /// Returns a callback that sends `started` as the first event and then registers the subscriber.
    pub(super) fn on_started(&self) -> impl FnOnce(CallStarted) + use<> {
        let (subscribers, subscriber, start_info) =
            (Arc::clone(&self.subscribers), Arc::clone(&self.subscriber), Arc::clone(&self.start_info));
        move |start| {
            let started = json!({"callId": start.id.to_string(), "traceId": start.trace});
            subscriber.send_lossy(StreamItem::new("started", started));
            subscribers.0.lock().insert(start.id, subscriber);
            start_info.get_or_init(|| start);
        }
    }
}

impl Drop for SubscriberGuard {
    fn drop(&mut self) {
        if let Some(start) = self.start_info.get() {
            self.subscribers.0.lock().remove(&start.id);
        }
    }
}

/// Subscriber of one call's events.
pub(super) struct CallSubscriber {
    owner: Owner,
    items: mpsc::Sender<StreamItem>,
    next_id: AtomicU64,
    pending: Mutex<HashMap<String, PendingQuestions>>,
}

/// Questions waiting for answers.
struct PendingQuestions {
    names: Vec<String>,
    answers: oneshot::Sender<InputResponses>,
}

impl CallSubscriber {
    pub(super) fn new(owner: &Owner, items: mpsc::Sender<StreamItem>) -> Arc<Self> {
        Arc::new(Self { owner: owner.clone(), items, next_id: AtomicU64::new(1), pending: Mutex::default() })
    }

    /// Owner of the call.
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Delivers answers to pending questions.
    pub(super) fn answer(&self, id: &str, given: &RawJson) -> Result<(), ApiProblem> {
        let mut pending = self.pending();
        let no_such_question = || ApiProblem::not_found("no pending question with this id");
        let question = pending.get(id).ok_or_else(no_such_question)?;
        let mut answers = InputResponses::new();
        for name in &question.names {
            let answer = given.get(name).filter(RawJson::is_object).ok_or_else(|| {
                ApiProblem::bad_request(format!(
                    "missing answer to '{name}': expected an object with an action"
                ))
                .at(format!("$.answers.{name}"))
            })?;
            answers.insert(name.clone(), answer);
        }
        let question = pending.remove(id).ok_or_else(no_such_question)?;
        question.answers.send(answers).map_err(|_| no_such_question())
    }

    /// Sends an event; drops it if the reader is too slow.
    fn send_lossy(&self, item: StreamItem) {
        let _ = self.items.try_send(item);
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, PendingQuestions>> {
        self.pending.lock()
    }
}

/// Removes pending questions when the asking tool stops waiting.
struct PendingGuard<'t> {
    subscriber: &'t CallSubscriber,
    id: String,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.subscriber.pending().remove(&self.id);
    }
}

impl Client for CallSubscriber {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::Progress(progress) => {
                let mut data = json!({"done": progress.done});
                if let Some(total) = progress.total {
                    data["total"] = total.into();
                }
                if let Some(message) = progress.message {
                    data["message"] = message.into();
                }
                self.send_lossy(StreamItem::new("progress", data));
            }
            Notice::Log(data) => self.send_lossy(StreamItem { event: "log", data }),
            // The subscriber waits for the result even if the server makes a task of the call.
            Notice::Task(_) | Notice::Custom { .. } => {}
        }
    }

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            if questions.values().any(|question| question.method != ELICITATION_METHOD) {
                return Err(AskError::Unsupported);
            }
            let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
            let (sender, receiver) = oneshot::channel();
            let names = questions.keys().cloned().collect();
            self.pending().insert(id.clone(), PendingQuestions { names, answers: sender });
            let guard = PendingGuard { subscriber: self, id };
            let data = questions.into_iter().map(|(name, InputRequest { method, params })| {
                (name, json!({"method": method, "params": params.to_value()}))
            });
            let item = json!({"id": guard.id, "questions": data.collect::<Map<String, Value>>()});
            // The asking side enforces its own timeout.
            self.items.send(StreamItem::new("question", item)).await.map_err(|_| AskError::Gone)?;
            receiver.await.map_err(|_| AskError::Gone)
        }
        .boxed()
    }

    fn request_meta(&self) -> Option<&ClientMeta> {
        Some(&CLIENT_META)
    }
}
