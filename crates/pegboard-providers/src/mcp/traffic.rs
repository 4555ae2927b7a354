//! What goes to and fro on one connection beside the calls themselves: who is under way, and what the server says
//! and asks on its own account.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::attachment::Attachments;
use pegboard_core::call::CallContext;
use pegboard_core::client::{AskError, Client, Notice, Progress, Question, Questions};
use pegboard_core::provider::Update;
use pegboard_json::RawJson;
use pegboard_wire::era::meta;
use pegboard_wire::{Id, Inbound, Notification, Receiver, Request, RpcError, code};
use tokio::sync::{Notify, watch};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::list::List;
use super::updates::Updates;

/// What ties a message to a task of a server with sessions.
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// How long a question waits for the call that it names: the answer to a call can overtake the note of its id.
const SOON: Duration = Duration::from_secs(1);

/// What a person should know about a server whose questions cannot be told apart.
pub(super) const ASKS: &str = "the server asks its callers things and does not say which of them it means, so each \
                               session has a server of its own";

/// The traffic of one connection. Clones are the same.
#[derive(Clone)]
pub(super) struct Traffic(Arc<State>);

struct State {
    calls: watch::Sender<Calls>,
    /// The lists that are not what they were, in the order of [`List::ALL`].
    changed: [Notify; 4],
    updates: Updates,
    /// The subscription that the server acknowledged last.
    acknowledged: watch::Sender<Option<Id>>,
    /// Which version of the wishes the server knows.
    told: watch::Sender<u64>,
    doubt: Notify,
    asked: Notify,
    asks: Arc<AtomicBool>,
}

/// The calls under way, by a number of our own.
#[derive(Default)]
struct Calls {
    next: u64,
    /// Nobody may enter any more.
    is_closed: bool,
    under_way: HashMap<u64, UnderWay>,
}

#[derive(Clone)]
struct UnderWay {
    purpose: Purpose,
    client: Option<Arc<dyn Client>>,
    /// Whose it is, if its caller is remembered.
    session: Option<Attachments>,
    /// The id of its request, once it is known.
    id: Option<Id>,
    /// The id of the task that the server has made of it, if it has.
    task: Option<String>,
    /// Woken when the server says that the task is not as it was.
    news: Arc<Notify>,
    over: CancellationToken,
}

/// What somebody is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Something that the server is asked to do.
    Call,
    /// To hear what changes.
    Watch,
}

/// A call under way, for as long as this lives.
pub(super) struct Ticket {
    traffic: Traffic,
    number: u64,
    news: Arc<Notify>,
    over: CancellationToken,
}

impl Calls {
    fn callers(&self) -> impl Iterator<Item = &UnderWay> {
        self.under_way.values().filter(|one| one.purpose == Purpose::Call)
    }
}

impl Ticket {
    /// Notes the id of the call's request on the wire.
    pub(super) fn is_request(&self, id: Id) {
        self.note(|call| call.id = Some(id));
    }

    /// Notes the id of the task that the server has made of the call.
    pub(super) fn is_task(&self, id: &str) {
        self.note(|call| call.task = Some(id.to_owned()));
    }

    /// Waits until the server says that the task of the call is not as it was; once, however often it says so.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    fn note(&self, note: impl FnOnce(&mut UnderWay)) {
        self.traffic.0.calls.send_modify(|calls| {
            if let Some(call) = calls.under_way.get_mut(&self.number) {
                note(call);
            }
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.over.cancel();
        self.traffic.0.calls.send_modify(|calls| {
            calls.under_way.remove(&self.number);
        });
    }
}

/// Whom a question of the server is for.
enum Asked {
    One(UnderWay),
    Nobody,
    Several,
}

impl Traffic {
    /// The traffic of a connection; notes in `asks` whether the server asks its callers things without saying whom it
    /// means.
    pub(super) fn new(asks: Arc<AtomicBool>, updates: Updates) -> Self {
        Self(Arc::new(State {
            calls: watch::Sender::default(),
            changed: std::array::from_fn(|_| Notify::new()),
            updates,
            acknowledged: watch::Sender::default(),
            told: watch::Sender::default(),
            doubt: Notify::new(),
            asked: Notify::new(),
            asks,
        }))
    }

    /// Notes a call that is about to be made; `None` if the connection takes no more.
    pub(super) fn enter(&self, context: &CallContext) -> Option<Ticket> {
        let session = context.tools.as_ref().and_then(|tools| tools.attachments()).cloned();
        self.admit(Purpose::Call, context.client.clone(), session)
    }

    /// Notes somebody who wants the server to be there and asks nothing of it; `None` if the connection takes no more.
    pub(super) fn stay(&self) -> Option<Ticket> {
        self.admit(Purpose::Watch, None, None)
    }

    fn admit(
        &self,
        purpose: Purpose,
        client: Option<Arc<dyn Client>>,
        session: Option<Attachments>,
    ) -> Option<Ticket> {
        let (news, over) = (Arc::new(Notify::new()), CancellationToken::new());
        let (id, task, its_news, its_over) = (None, None, Arc::clone(&news), over.clone());
        let call = UnderWay { purpose, client, session, id, task, news: its_news, over: its_over };
        let mut number = 0;
        let has_entered = self.0.calls.send_if_modified(|calls| {
            if !calls.is_closed {
                number = calls.next;
                calls.next += 1;
                calls.under_way.insert(number, call);
            }
            !calls.is_closed
        });
        has_entered.then(|| Ticket { traffic: self.clone(), number, news, over })
    }

    /// Whether nobody is there.
    pub(super) fn is_idle(&self) -> bool {
        self.0.calls.borrow().under_way.is_empty()
    }

    /// Whether the server is at work on a call.
    pub(super) fn is_busy(&self) -> bool {
        self.0.calls.borrow().callers().next().is_some()
    }

    /// Whether the server is at work on a call of anybody else than this session.
    pub(super) fn is_busy_for_others(&self, session: &Attachments) -> bool {
        let is_own = |call: &UnderWay| call.session.as_ref().is_some_and(|of| of.is_same(session));
        self.0.calls.borrow().callers().any(|call| !is_own(call))
    }

    /// Waits until nobody has been there for so long. From then on the connection takes no more.
    pub(super) async fn idle_for(&self, time: Duration) {
        let mut calls = self.0.calls.subscribe();
        loop {
            // The sender lives as long as this does.
            let _ = calls.wait_for(|calls| calls.under_way.is_empty()).await;
            if time::timeout(time, calls.changed()).await.is_err() && self.close_if_idle() {
                return;
            }
        }
    }

    fn close_if_idle(&self) -> bool {
        self.0.calls.send_if_modified(|calls| {
            calls.is_closed = calls.under_way.is_empty();
            calls.is_closed
        })
    }

    /// Notes that a list is not what it was.
    pub(super) fn note_change(&self, list: List) {
        self.0.changed[list as usize].notify_one();
    }

    /// Waits until a list is not what it was; once, however often that was said.
    pub(super) async fn change(&self, list: List) {
        self.0.changed[list as usize].notified().await;
    }

    /// Passes on what belongs to no call.
    pub(super) fn update(&self, update: Update) {
        self.0.updates.tell(update);
    }

    /// Waits until the server has acknowledged a subscription.
    pub(super) async fn acknowledgement(&self, subscription: &Id) {
        let mut acknowledged = self.0.acknowledged.subscribe();
        // The sender lives as long as this does.
        let _ = acknowledged.wait_for(|last| last.as_ref() == Some(subscription)).await;
    }

    /// Notes that the server knows the wishes up to this version.
    pub(super) fn note_told(&self, version: u64) {
        self.0.told.send_replace(version);
    }

    /// Waits until the server knows the wishes up to this version.
    pub(super) async fn told(&self, version: u64) {
        // The sender lives as long as this does.
        let _ = self.0.told.subscribe().wait_for(|told| *told >= version).await;
    }

    /// Hears what is about no call; gives back what may be about one.
    pub(super) fn hear(&self, notification: Notification) -> Option<Notification> {
        let method = &*notification.method;
        match method {
            "notifications/resources/updated" => {
                if let Some(params) = &notification.params {
                    self.update(Update::Resource(without_meta(params, meta::SUBSCRIPTION_ID)));
                }
            }
            "notifications/elicitation/complete" => {
                if let Some(params) = notification.params {
                    self.update(Update::BeenThere(params));
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let id = notification.params.as_ref();
                let id = id.and_then(|params| params.at(&["_meta", meta::SUBSCRIPTION_ID]));
                self.0.acknowledged.send_replace(id.and_then(|id| id.read().ok()));
            }
            "notifications/tasks/status" => {
                let id = notification.params.as_ref().and_then(|params| params.get("taskId"));
                let id = id.and_then(|id| id.read::<String>().ok());
                let calls = self.0.calls.borrow();
                if let Some(call) = calls.callers().find(|call| call.task.is_some() && call.task == id) {
                    call.news.notify_one();
                }
            }
            _ => {
                let changed: Vec<List> =
                    List::ALL.into_iter().filter(|list| list.change() == method).collect();
                if changed.is_empty() {
                    return Some(notification);
                }
                for list in changed {
                    self.note_change(list);
                }
            }
        }
        None
    }

    /// Notes that the server may not answer any more.
    pub(super) fn note_doubt(&self) {
        self.0.doubt.notify_one();
    }

    /// Waits until the server may not answer any more.
    pub(super) async fn doubt(&self) {
        self.0.doubt.notified().await;
    }

    /// Waits until the server asks something without saying whom it means, for the first time.
    pub(super) async fn asked(&self) {
        self.0.asked.notified().await;
    }

    /// Whether the server has asked something without saying whom it meant.
    pub(super) fn has_asked(&self) -> bool {
        self.0.asks.load(Ordering::Relaxed)
    }

    /// Whom something is for that the server says about a request, or about none in particular.
    fn meant(&self, about: Option<&Id>) -> Asked {
        let calls = self.0.calls.borrow();
        if about.is_some() {
            // A call that has ended is no reason to turn to another.
            let call = calls.callers().find(|call| call.id.as_ref() == about);
            return call.cloned().map_or(Asked::Nobody, Asked::One);
        }
        // Who cannot be spoken to may be the one that is meant.
        let mut callers = calls.callers();
        match (callers.next(), callers.next()) {
            (None, _) => Asked::Nobody,
            (Some(only), None) => Asked::One(only.clone()),
            (Some(_), Some(_)) => Asked::Several,
        }
    }

    /// Waits a moment for the call that has this request.
    async fn known(&self, about: Option<&Id>) {
        if about.is_some() {
            let mut calls = self.0.calls.subscribe();
            let has_id = |calls: &Calls| calls.under_way.values().any(|call| call.id.as_ref() == about);
            // If it does not come the call has ended.
            let _ = time::timeout(SOON, calls.wait_for(has_id)).await;
        }
    }

    /// The call that the server has made this task of. Waits a moment for it, for the question may have overtaken it.
    async fn with_task(&self, id: &str) -> Option<UnderWay> {
        let mut calls = self.0.calls.subscribe();
        let find = |calls: &Calls| calls.callers().find(|call| call.task.as_deref() == Some(id)).cloned();
        let known = time::timeout(SOON, calls.wait_for(|calls| find(calls).is_some())).await.ok()?.ok()?;
        find(&known)
    }

    async fn ask(self, inbound: Inbound) -> Result<RawJson, RpcError> {
        let Inbound { request, about, .. } = inbound;
        let task = request.params.as_ref().and_then(|params| params.at(&["_meta", RELATED_TASK, "taskId"]));
        if let Some(task) = task.as_ref().and_then(RawJson::text)
            && let Some(call) = self.with_task(&task).await
        {
            return answered(&call, request).await;
        }
        self.known(about.as_ref()).await;
        let is_roots = &*request.method == "roots/list";
        if about.is_none() && !is_roots && !self.0.asks.swap(true, Ordering::Relaxed) {
            self.0.asked.notify_one();
        }
        let meant = self.meant(about.as_ref());
        // Servers ask for folders on their own account, too. That sends nobody home in the middle of a call.
        if is_roots && about.is_none() && !matches!(&meant, Asked::One(call) if call.can_be_asked_aside()) {
            return Ok(no_roots());
        }
        match meant {
            Asked::One(call) if call.client.is_some() => answered(&call, request).await,
            Asked::One(_) | Asked::Nobody if is_roots => Ok(no_roots()),
            Asked::One(_) | Asked::Nobody => {
                Err(refusal("no call is under way that somebody could be asked about"))
            }
            Asked::Several => Err(refusal(
                "calls of several callers are under way, and nobody can tell whom the question is for",
            )),
        }
    }
}

impl UnderWay {
    /// Whether its caller can be asked while the call goes on.
    fn can_be_asked_aside(&self) -> bool {
        self.client.as_ref().is_some_and(|client| !client.is_asked_in_rounds())
    }
}

/// What the caller answers to a question.
async fn answered(call: &UnderWay, request: Request) -> Result<RawJson, RpcError> {
    let params = request.params.unwrap_or_else(RawJson::empty_object);
    let params = without_meta(&params, RELATED_TASK);
    let question = Question { method: request.method.to_string(), params };
    match put(call, question).await {
        // Who cannot be asked has no folders to show, either.
        Err(AskError::Nobody) if &*request.method == "roots/list" => Ok(no_roots()),
        answer => answer.map_err(|error| refusal(&error.to_string())),
    }
}

/// Puts one question to the caller, as long as its call is under way.
async fn put(call: &UnderWay, question: Question) -> Result<RawJson, AskError> {
    let client = call.client.as_ref().ok_or(AskError::Nobody)?;
    let name = question.method.clone();
    let questions = Questions::from_iter([(name.clone(), question)]);
    let mut answers = call.over.run_until_cancelled(client.ask(questions)).await.ok_or(AskError::Gone)??;
    answers.swap_remove(&name).ok_or_else(|| AskError::Refused("it left the question out".to_owned()))
}

fn no_roots() -> RawJson {
    RawJson::of(&serde_json::json!({"roots": []}))
}

fn refusal(why: &str) -> RpcError {
    RpcError::new(code::INTERNAL_ERROR, format!("The question has no answer: {why}"))
}

impl Receiver for Traffic {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        match &*inbound.request.method {
            "elicitation/create" | "sampling/createMessage" | "roots/list" => {
                self.clone().ask(inbound).boxed()
            }
            unknown => ready(Err(RpcError::method_not_found(unknown))).boxed(),
        }
    }

    fn notification(&self, notification: Notification, about: Option<Id>) {
        let Some(notification) = self.hear(notification) else { return };
        // It may overtake progress that the call has not yet read; where each call has a stream of its own it does not
        // come here.
        match (self.meant(about.as_ref()), &*notification.method, notification.params.as_ref()) {
            (Asked::One(UnderWay { client: Some(client), .. }), ..) => tell(&*client, notification),
            (Asked::Nobody, "notifications/message", Some(params)) if about.is_none() => {
                self.update(Update::Log(params.clone()));
            }
            // A line that may be one caller's is for no other.
            (Asked::One(_) | Asked::Nobody | Asked::Several, ..) => {}
        }
    }
}

/// An object without one of the protocol's own members.
pub(super) fn without_meta(object: &RawJson, key: &str) -> RawJson {
    let Some(own) = object.get("_meta") else { return object.clone() };
    let rest = own.without(key);
    if rest.names().is_empty() { object.without("_meta") } else { object.with("_meta", &rest) }
}

/// Tells the caller what the server says about its call.
pub(super) fn tell(client: &dyn Client, notification: Notification) {
    let Some(params) = notification.params else { return };
    match &*notification.method {
        "notifications/progress" => {
            let number = |name: &str| params.get(name).and_then(|number| number.read::<f64>().ok());
            if let Some(done) = number("progress") {
                let message = params.get("message").and_then(|message| message.read().ok());
                client.notify(Notice::Progress(Progress { done, total: number("total"), message }));
            }
        }
        "notifications/message" => client.notify(Notice::Log(params)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::id::ServerName;
    use pegboard_core::settings::mcp::{Settings, Target};

    use super::*;

    #[test]
    fn what_is_about_a_call_that_has_ended_is_for_nobody_else() {
        let settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
        let traffic = Traffic::new(Arc::default(), Updates::new(&settings));
        let context = CallContext::default();
        let (first, second) = (traffic.enter(&context).unwrap(), traffic.enter(&context).unwrap());
        first.is_request(Id::Number(1));
        second.is_request(Id::Number(2));
        let is_found = |id| matches!(traffic.meant(Some(&Id::Number(id))), Asked::One(_));
        assert_eq!([is_found(1), is_found(2), is_found(3)], [true, true, false]);
        drop(first);
        assert_eq!([is_found(1), is_found(2)], [false, true]);
        assert!(matches!(traffic.meant(None), Asked::One(_)));
    }
}
