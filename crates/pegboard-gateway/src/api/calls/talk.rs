//! Whoever reads the events of a call: what its tool says and asks, and where the answers come in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::client::{Answers, AskError, Client, Notice, Question, Questions};
use pegboard_json::RawJson;
use pegboard_runtime::{Begun, CallId};
use pegboard_wire::era::meta;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use super::TellBegun;
use crate::api::problem::Problem;
use crate::api::stream::Item;

/// What a reader of events can be asked.
const ASKED: &str = "elicitation/create";

/// What servers are told of a reader of events: it fills in forms, goes to addresses, and reads the log.
static REMARKS: LazyLock<RawJson> = LazyLock::new(|| {
    RawJson::from(json!({
        meta::CLIENT_CAPABILITIES: {"elicitation": {"form": {}, "url": {}}},
        meta::LOG_LEVEL: "info",
    }))
});

/// The calls whose events somebody reads.
#[derive(Default)]
pub(in crate::api) struct Talks(Mutex<HashMap<CallId, Arc<Talk>>>);

impl Talks {
    /// The reader of a call's events.
    pub(super) fn get(&self, call: CallId) -> Option<Arc<Talk>> {
        self.talks().get(&call).cloned()
    }

    /// A place for a reader, under what its call is known by as soon as that is known.
    pub(super) fn entry(self: &Arc<Self>, talk: Arc<Talk>, known: Arc<OnceLock<Begun>>) -> Entry {
        Entry { talks: Arc::clone(self), talk, known }
    }

    fn talks(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Talk>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the calls whose events somebody reads. Dropping it gives it up.
pub(super) struct Entry {
    talks: Arc<Talks>,
    talk: Arc<Talk>,
    known: Arc<OnceLock<Begun>>,
}

impl Entry {
    /// Takes the place when the call is under way, and says so to the reader before anything else.
    pub(super) fn opening(&self) -> TellBegun {
        let (talks, talk, known) = (Arc::clone(&self.talks), Arc::clone(&self.talk), Arc::clone(&self.known));
        Box::new(move |begun| {
            let started = json!({"callId": begun.id.to_string(), "traceId": begun.trace});
            talk.tell(Item::new("started", started));
            talks.talks().insert(begun.id, talk);
            known.get_or_init(|| begun);
        })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(begun) = self.known.get() {
            self.talks.talks().remove(&begun.id);
        }
    }
}

/// The reader of one call's events.
pub(super) struct Talk {
    owner: String,
    items: mpsc::Sender<Item>,
    n_asked: AtomicU64,
    open: Mutex<HashMap<String, Open>>,
}

/// Questions that wait for their answers.
struct Open {
    names: Vec<String>,
    answers: oneshot::Sender<Answers>,
}

impl Talk {
    pub(super) fn new(owner: &str, items: mpsc::Sender<Item>) -> Arc<Self> {
        Arc::new(Self { owner: owner.to_owned(), items, n_asked: AtomicU64::new(1), open: Mutex::default() })
    }

    /// Whose call it is.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Gives the answers to questions that wait for them.
    pub(super) fn answer(&self, id: &str, given: &RawJson) -> Result<(), Problem> {
        let mut open = self.open();
        let missing = || Problem::not_found("The call has asked nothing under this id, or asks no longer");
        let waiting = open.get(id).ok_or_else(missing)?;
        let mut answers = Answers::new();
        for name in &waiting.names {
            let answer = given.get(name).filter(RawJson::is_object).ok_or_else(|| {
                Problem::bad_request(format!("there is no answer to '{name}': give an object with an action"))
                    .at(format!("$.answers.{name}"))
            })?;
            answers.insert(name.clone(), answer);
        }
        let waiting = open.remove(id).ok_or_else(missing)?;
        waiting.answers.send(answers).map_err(|_| missing())
    }

    /// Tells something to a reader that may be slow; then it is lost.
    fn tell(&self, item: Item) {
        let _ = self.items.try_send(item);
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Questions that are forgotten when nobody waits for their answers any more.
struct Asking<'t> {
    talk: &'t Talk,
    id: String,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.talk.open().remove(&self.id);
    }
}

impl Client for Talk {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::Progress(progress) => {
                let mut told = json!({"done": progress.done});
                if let Some(total) = progress.total {
                    told["total"] = total.into();
                }
                if let Some(message) = progress.message {
                    told["message"] = message.into();
                }
                self.tell(Item::new("progress", told));
            }
            Notice::Log(data) => self.tell(Item { event: "log", data }),
            // It waits for the end, whatever its server makes of the call.
            Notice::Task(_) => {}
        }
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        async move {
            if questions.values().any(|question| question.method != ASKED) {
                return Err(AskError::Nobody);
            }
            let id = self.n_asked.fetch_add(1, Ordering::Relaxed).to_string();
            let (answers, answered) = oneshot::channel();
            let names = questions.keys().cloned().collect();
            self.open().insert(id.clone(), Open { names, answers });
            let asking = Asking { talk: self, id };
            let told = questions.into_iter().map(|(name, Question { method, params })| {
                (name, json!({"method": method, "params": params.to_value()}))
            });
            let item = json!({"id": asking.id, "questions": told.collect::<Map<String, Value>>()});
            // Whoever asks has a limit of its own.
            self.items.send(Item::new("question", item)).await.map_err(|_| AskError::Gone)?;
            answered.await.map_err(|_| AskError::Gone)
        }
        .boxed()
    }

    fn remarks(&self) -> Option<RawJson> {
        Some(REMARKS.clone())
    }
}
