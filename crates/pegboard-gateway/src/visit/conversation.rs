//! What a tool says and asks while it runs, on its way to the client.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, try_join_all};
use pegboard_core::call::{Ended, Running};
use pegboard_core::client::{Answers, AskError, Client, Lending, Notice, Question, Questions};
use pegboard_core::task::{ServerTask, TaskUse};
use pegboard_json::RawJson;
use pegboard_wire::Failure;
use pegboard_wire::era::LogLevel;
use pegboard_wire::server::{Capability, ClientDescription, Peer};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time;
use uuid::Uuid;

use super::Visit;

/// How many notices may wait for a client that is slow to take them; more are lost.
const MAX_NOTICES: usize = 1_000;
/// How long a client may take to hear the last notices before it gets the result.
const FAREWELL: Duration = Duration::from_secs(5);
/// How many tools of one call may have questions at a time.
const MAX_ROUNDS: usize = 64;
/// The member of a question that tells a visit to an address from all others.
const VISIT: &str = "elicitationId";
/// How far apart questions may be that are asked at the same time.
const SAME_TIME: Duration = Duration::from_millis(20);

/// The client of one call. It may come in several requests, one after another.
pub(crate) struct Conversation {
    client: ClientDescription,
    label: Option<Arc<str>>,
    remarks: RawJson,
    /// Answers that came with the request to questions that nobody has asked yet.
    prepared: Mutex<Option<RawJson>>,
    /// Why it could not be asked something.
    lack: OnceLock<Capability>,
    task_use: TaskUse,
    /// The task that a server has made of the call, if it has.
    made: watch::Sender<Option<ServerTask>>,
    /// Where notices go while the client listens.
    listener: Mutex<Option<mpsc::Sender<Notice>>>,
    asking: Asking,
}

/// How the client is asked.
enum Asking {
    /// By requests, in the middle of its own.
    Directly(Peer),
    /// In the reply to its request, after which it comes again.
    InRounds(mpsc::Sender<Asked>, Mutex<Option<mpsc::Receiver<Asked>>>),
}

/// What was asked at one time, and who waits for the answers.
#[derive(Debug)]
struct Asked {
    questions: Questions,
    answers: oneshot::Sender<Answers>,
}

/// All questions that wait for answers, each under a name that no other has.
#[derive(Debug)]
pub(crate) struct Round(Vec<(Asked, Vec<String>)>);

/// What came of accompanying a call.
pub(crate) enum Turn {
    /// It has ended.
    Ended(Box<Ended>),
    /// Its client must answer something before it goes on.
    Asked(Running, Round),
    /// A server has made a task of it, and its client takes that.
    Task(Running, ServerTask),
}

/// What a call says while it is kept as a task.
pub(crate) enum Said {
    /// What it does now, for a person.
    Message(String),
    /// What it wants to know.
    Questions(Round),
}

impl Conversation {
    /// A conversation with the client of a request.
    pub(super) fn begin(visit: &Visit) -> Arc<Self> {
        let task_use = visit.task_use();
        // Whoever has a task kept is asked when it looks after it.
        let is_there = !matches!(task_use, TaskUse::Wanted(_));
        let asking = if visit.peer.can_be_asked() && is_there {
            Asking::Directly(visit.peer.clone())
        } else {
            let (sender, receiver) = mpsc::channel(MAX_ROUNDS);
            Asking::InRounds(sender, Mutex::new(Some(receiver)))
        };
        Arc::new(Self {
            client: visit.client.clone(),
            label: visit.label.clone(),
            remarks: visit.remarks.clone(),
            prepared: Mutex::new(visit.answers.clone()),
            lack: OnceLock::new(),
            task_use,
            made: watch::Sender::default(),
            listener: Mutex::default(),
            asking,
        })
    }

    /// Waits for the end of a call, or for questions that only the next request can answer. What the tool says is
    /// told in order, and all of it before the end.
    pub(super) async fn accompany(&self, mut running: Running, peer: &Peer) -> Turn {
        let (sender, receiver) = mpsc::channel(MAX_NOTICES);
        self.listen(Some(sender));
        let mut telling = pin!(self.tell(receiver, peer).fuse());
        let mut rounds = self.take_rounds();
        let turn = loop {
            tokio::select! {
                biased;
                ended = &mut running => break Turn::Ended(Box::new(ended)),
                task = self.made() => break Turn::Task(running, task),
                asked = next(&mut rounds) => break Turn::Asked(running, gather(asked, &mut rounds).await),
                () = &mut telling => {}
            }
        };
        self.put_back(rounds);
        self.listen(None);
        // A client that does not listen any more must not keep its own result waiting.
        let _ = time::timeout(FAREWELL, telling).await;
        turn
    }

    /// Waits for the end of a call that is kept as a task.
    pub(crate) async fn keep(&self, mut running: Running, mut hear: impl FnMut(Said)) -> Ended {
        let (sender, mut notices) = mpsc::channel(MAX_NOTICES);
        self.listen(Some(sender));
        let mut rounds = self.take_rounds();
        loop {
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                asked = next(&mut rounds) => hear(Said::Questions(Round::of(vec![asked]))),
                Some(notice) = notices.recv() => {
                    if let Notice::Progress(progress) = notice
                        && let Some(message) = self.named(progress.message)
                    {
                        hear(Said::Message(message));
                    }
                }
            }
        }
    }

    /// Waits until a server has made a task of the call; for ever if the client takes none.
    async fn made(&self) -> ServerTask {
        if self.task_use == TaskUse::Taken
            && let Ok(made) = self.made.subscribe().wait_for(Option::is_some).await
        {
            return made.clone().unwrap_or_default();
        }
        std::future::pending().await
    }

    /// Forgets the task that a server has made: there is no room to keep one, so the client waits for the end.
    pub(super) fn decline_task(&self) {
        self.made.send_replace(None);
    }

    fn take_rounds(&self) -> Option<mpsc::Receiver<Asked>> {
        match &self.asking {
            Asking::Directly(_) => None,
            Asking::InRounds(_, rounds) => rounds.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }

    fn put_back(&self, taken: Option<mpsc::Receiver<Asked>>) {
        if let Asking::InRounds(_, rounds) = &self.asking {
            *rounds.lock().unwrap_or_else(PoisonError::into_inner) = taken;
        }
    }

    async fn tell(&self, mut notices: mpsc::Receiver<Notice>, peer: &Peer) {
        while let Some(notice) = notices.recv().await {
            match notice {
                Notice::Progress(progress) => {
                    let message = self.named(progress.message);
                    peer.progress(progress.done, progress.total, message.as_deref()).await;
                }
                Notice::Log(line) => {
                    let level = line.get("level").and_then(|level| level.read::<LogLevel>().ok());
                    let logger = line.get("logger");
                    let logger = logger.as_ref().and_then(RawJson::text);
                    let logger = logger.as_deref().or(self.label.as_deref()).unwrap_or_default();
                    let data = line.get("data").unwrap_or_else(|| RawJson::of(&json!(null)));
                    peer.log(level.unwrap_or(LogLevel::Info), logger, &data).await;
                }
                // That is told in another way.
                Notice::Task(_) => {}
            }
        }
    }

    /// What a tool says of its progress, with the tool's name where the client called another.
    fn named(&self, message: Option<String>) -> Option<String> {
        match (&self.label, message) {
            (None, message) => message,
            (Some(label), None) => Some(label.to_string()),
            (Some(label), Some(message)) => Some(format!("{label}: {message}")),
        }
    }

    fn listen(&self, listener: Option<mpsc::Sender<Notice>>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    /// What the client would have to be able to do to answer a question.
    fn lack_for(&self, question: &Question) -> Option<Capability> {
        self.client.lacks(&question.method, Some(&question.params))
    }

    /// Questions as the client's era has them: only with a session has a visit to an address an id.
    fn in_its_era(&self, mut questions: Questions) -> Questions {
        let has_session = match self.task_use {
            TaskUse::Hidden | TaskUse::Wanted(_) => true,
            TaskUse::Taken | TaskUse::Declined => false,
        };
        for Question { params, .. } in questions.values_mut().filter(|question| is_at_address(question)) {
            match (has_session, params.get(VISIT)) {
                (true, None) => *params = params.with(VISIT, &RawJson::of(&Uuid::new_v4().to_string())),
                (false, Some(_)) => *params = params.without(VISIT),
                (true, Some(_)) | (false, None) => {}
            }
        }
        questions
    }

    /// What the client would have had to be able to do to answer what it was asked.
    pub(super) fn lack(&self) -> Option<Capability> {
        self.lack.get().copied()
    }

    /// The answers to these questions that the client has given before it was asked.
    fn given_before(&self, questions: &Questions) -> Option<Answers> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let given = prepared.as_ref()?;
        let answers = questions.keys().map(|name| Some((name.clone(), given.get(name)?)));
        let answers = answers.collect::<Option<Answers>>()?;
        *prepared = None;
        Some(answers)
    }
}

/// The next questions that the client cannot be asked directly.
async fn next(rounds: &mut Option<mpsc::Receiver<Asked>>) -> Asked {
    if let Some(rounds) = rounds
        && let Some(round) = rounds.recv().await
    {
        return round;
    }
    // Nobody asks in this way.
    std::future::pending().await
}

/// The questions with those that are asked at the same time, so that the client need not come back for each.
async fn gather(first: Asked, rounds: &mut Option<mpsc::Receiver<Asked>>) -> Round {
    let mut all = vec![first];
    while all.len() < MAX_ROUNDS
        && let Ok(asked) = time::timeout(SAME_TIME, next(rounds)).await
    {
        all.push(asked);
    }
    Round::of(all)
}

impl Client for Conversation {
    fn notify(&self, notice: Notice) {
        if let Notice::Task(task) = notice {
            self.made.send_replace(Some(task));
            return;
        }
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = &*listener {
            // What a slow client has no room for is lost to it.
            let _ = listener.try_send(notice);
        }
    }

    fn remarks(&self) -> Option<RawJson> {
        Some(self.remarks.clone())
    }

    fn is_asked_in_rounds(&self) -> bool {
        matches!(self.asking, Asking::InRounds(..))
    }

    fn task_use(&self) -> TaskUse {
        self.task_use
    }

    fn lends(&self) -> Lending {
        match self.client.capabilities.get("sampling") {
            None => Lending::Nothing,
            Some(sampling) if sampling.get("tools").is_some() => Lending::Tools,
            Some(_) => Lending::Text,
        }
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        async move {
            if let Some(lack) = questions.values().find_map(|question| self.lack_for(question)) {
                self.lack.get_or_init(|| lack);
                return Err(AskError::Nobody);
            }
            let questions = self.in_its_era(questions);
            match &self.asking {
                Asking::Directly(peer) => ask_directly(peer, questions).await,
                Asking::InRounds(rounds, _) => {
                    if let Some(answers) = self.given_before(&questions) {
                        return Ok(answers);
                    }
                    let (answers, answered) = oneshot::channel();
                    rounds.send(Asked { questions, answers }).await.map_err(|_| AskError::Gone)?;
                    answered.await.map_err(|_| AskError::Gone)
                }
            }
        }
        .boxed()
    }
}

/// Whether a question is to have a person visit an address.
fn is_at_address(question: &Question) -> bool {
    let mode = question.params.get("mode");
    question.method == "elicitation/create" && mode.is_some_and(|mode| mode.text().as_deref() == Some("url"))
}

/// Asks a client with a session everything at once.
async fn ask_directly(peer: &Peer, questions: Questions) -> Result<Answers, AskError> {
    let asked = questions.into_iter().map(|(name, question)| async move {
        let answer = peer.ask(&question.method, Some(question.params)).await;
        let answer = answer.map_err(|failure| match failure {
            Failure::Refused(error) => AskError::Refused(error.message),
            _ => AskError::Gone,
        })?;
        Ok((name, answer))
    });
    Ok(try_join_all(asked).await?.into_iter().collect())
}

impl Round {
    fn of(all: Vec<Asked>) -> Self {
        let mut taken = HashSet::new();
        let named = all.into_iter().map(|asked| {
            let names = asked.questions.keys().map(|name| {
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
            (asked, names)
        });
        Self(named.collect())
    }

    /// Every question under its name.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (&String, &Question)> {
        self.0.iter().flat_map(|(asked, names)| names.iter().zip(asked.questions.values()))
    }

    /// The questions as the protocol writes them.
    pub(super) fn as_json(&self) -> RawJson {
        self.questions().fold(RawJson::empty_object(), |all, (name, question)| {
            let asked = RawJson::empty_object()
                .with("method", &RawJson::of(&question.method))
                .with("params", &question.params);
            all.with(name, &asked)
        })
    }

    /// Gives the tools all their answers.
    pub(crate) fn finish(self, mut answers: Answers) {
        for (Asked { questions, answers: waiting }, names) in self.0 {
            let given = questions.into_keys().zip(&names);
            let given = given.filter_map(|(own, name)| Some((own, answers.swap_remove(name)?)));
            // A tool that has given up in the meantime does not hear them.
            let _ = waiting.send(given.collect());
        }
    }

    /// The name of a question that has no answer among these.
    pub(super) fn unanswered(&self, answers: Option<&RawJson>) -> Option<&str> {
        let is_answered = |name: &String| answers.is_some_and(|answers| answers.get(name).is_some());
        self.questions().map(|(name, _)| name).find(|name| !is_answered(name)).map(String::as_str)
    }

    /// Gives the tool its answers.
    pub(super) fn answer(self, answers: Option<&RawJson>) {
        let answer = |name: &String| Some((name.clone(), answers?.get(name)?));
        let answers = self.questions().filter_map(|(name, _)| answer(name)).collect();
        self.finish(answers);
    }
}
