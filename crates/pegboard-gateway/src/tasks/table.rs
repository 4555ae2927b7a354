//! The tasks that are kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use pegboard_core::call::{Ended, Running};
use pegboard_core::task::{ServerTask, lifetime};
use pegboard_json::RawJson;
use pegboard_runtime::wall::WallClock;
use pegboard_wire::RpcError;
use pegboard_wire::server::{Change, SessionId};
use tokio::sync::broadcast;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use super::end::End;
use super::task::Task;
use super::{Form, words};
use crate::visit::conversation::{Conversation, Said};

/// Puts the end of a call into words.
pub(crate) type Words = Box<dyn FnOnce(&Ended) -> Result<RawJson, RpcError> + Send>;

/// How many tasks are kept at a time.
pub(crate) const MAX_TASKS: usize = 1_000;
/// How many of them one session may have.
const MAX_TASKS_EACH: usize = 100;
/// How many bytes the results of tasks may have in all before the oldest are forgotten.
const MAX_RESULT_BYTES: usize = 256 * 1024 * 1024;
/// How many tasks a page lists.
const PAGE: usize = 100;

/// The tasks that are kept. Dropping it calls them off.
pub(crate) struct Table {
    /// In the order in which they were made.
    kept: Mutex<IndexMap<String, Kept>>,
    changes: broadcast::Sender<Change>,
    wall: WallClock,
}

/// A task and the work on it. The work holds the task as well, and so must not be held by it.
struct Kept {
    task: Arc<Task>,
    _work: AbortOnDropHandle<()>,
}

/// A call that is to be kept as a task.
pub(crate) struct Job {
    pub(crate) running: Running,
    pub(crate) conversation: Arc<Conversation>,
    /// Puts the end of the call into words.
    pub(crate) words: Words,
}

impl Table {
    /// No tasks yet; what becomes of them is told to `changes`.
    pub(crate) fn new(changes: broadcast::Sender<Change>) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), changes, wall: WallClock::start() })
    }

    /// Keeps a call as a task, and gives what its client is told; the call again if there are too many tasks.
    pub(crate) fn keep(
        self: &Arc<Self>,
        form: Form,
        made: &ServerTask,
        job: Job,
    ) -> Result<RawJson, Box<Job>> {
        let mut kept = self.kept();
        let n_own = kept.values().filter(|kept| *kept.task.form() == form).count();
        let is_full = kept.len() >= MAX_TASKS || matches!(form, Form::Session(_)) && n_own >= MAX_TASKS_EACH;
        if is_full {
            return Err(Box::new(job));
        }
        let time_to_live = lifetime(made.time_to_live);
        let task = Task::new(form, time_to_live, made.poll_interval, self.wall, self.changes.clone());
        if let Some(message) = &made.message {
            task.say(message.clone());
        }
        let task = Arc::new(task);
        let work = tokio::spawn(look_after(Arc::downgrade(self), Arc::clone(&task), job));
        let id = task.id().to_owned();
        let told = words::created(&task);
        kept.insert(id, Kept { task, _work: AbortOnDropHandle::new(work) });
        Ok(told)
    }

    /// The task of that id, if it is of this form.
    pub(super) fn find(&self, form: &Form, id: &str) -> Result<Arc<Task>, RpcError> {
        let kept = self.kept();
        let found = kept.get(id).filter(|kept| kept.task.form() == form);
        found.map(|kept| Arc::clone(&kept.task)).ok_or_else(|| {
            let problem = "there is no such task: it may have expired, or this process was started anew";
            RpcError::invalid_params(problem)
        })
    }

    /// The tasks after the one that `cursor` names, and the cursor of the next page if there is one.
    pub(super) fn page(
        &self,
        form: &Form,
        cursor: Option<&str>,
    ) -> Result<(Vec<Arc<Task>>, Option<String>), RpcError> {
        let kept = self.kept();
        let mut tasks = kept.values().map(|kept| &kept.task).filter(|task| task.form() == form);
        if let Some(cursor) = cursor {
            let last = tasks.find(|task| task.id() == cursor);
            last.ok_or_else(|| RpcError::invalid_params("the cursor is not known, or has expired"))?;
        }
        let page: Vec<Arc<Task>> = tasks.by_ref().take(PAGE).cloned().collect();
        let is_last = tasks.next().is_none();
        let next = page.last().filter(|_| !is_last).map(|task| task.id().to_owned());
        Ok((page, next))
    }

    /// Forgets the tasks of a session that is over, and calls them off.
    pub(crate) fn end(&self, session: &SessionId) {
        let is_over = |kept: &Kept| matches!(kept.task.form(), Form::Session(of) if of == session);
        let over: Vec<Kept> = {
            let mut kept = self.kept();
            let ids: Vec<String> =
                kept.iter().filter(|(_, kept)| is_over(kept)).map(|(id, _)| id.clone()).collect();
            ids.iter().filter_map(|id| kept.shift_remove(id)).collect()
        };
        // Calls end here, which may take others a moment.
        drop(over);
    }

    /// Forgets the oldest results, if there are too many bytes of them.
    fn make_room(&self) {
        let mut kept = self.kept();
        let n_bytes = |kept: &Kept| kept.task.look(|state| state.end.as_ref().map_or(0, End::n_bytes));
        let sizes: Vec<(&str, usize)> = kept.iter().map(|(id, kept)| (id.as_str(), n_bytes(kept))).collect();
        let surplus: Vec<String> = surplus(&sizes, MAX_RESULT_BYTES).into_iter().map(str::to_owned).collect();
        for id in surplus {
            kept.shift_remove(&id);
        }
    }

    fn kept(&self) -> MutexGuard<'_, IndexMap<String, Kept>> {
        // Every change of the table is a single call, so a panic cannot leave it half-changed.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks after a task from its beginning until it is forgotten.
async fn look_after(table: Weak<Table>, task: Arc<Task>, job: Job) {
    let Job { running, conversation, words } = job;
    let heard = |said| match said {
        Said::Message(message) => task.say(message),
        Said::Questions(round) => task.ask(round),
    };
    let end = tokio::select! {
        biased;
        () = task.cancelled.cancelled() => End::Cancelled,
        ended = conversation.keep(running, heard) => End::of(&ended, words),
        () = time::sleep_until(task.expires) => End::expired(),
    };
    task.end(end);
    drop(conversation);
    if let Some(table) = table.upgrade() {
        table.make_room();
    }
    // The client may come for the result until then.
    time::sleep_until(task.expires).await;
    if let Some(table) = table.upgrade() {
        let gone = table.kept().shift_remove(task.id());
        drop(gone);
    }
}

/// A task that a client with a session wants, before any server has heard of it.
pub(crate) fn wanted(time_to_live: Duration) -> ServerTask {
    ServerTask { time_to_live: Some(time_to_live), ..ServerTask::default() }
}

/// Those of these results, the oldest first, that must go so that the rest has so many bytes at most.
fn surplus<'s>(sizes: &[(&'s str, usize)], max: usize) -> Vec<&'s str> {
    let mut n_bytes: usize = sizes.iter().map(|(_, n_bytes)| n_bytes).sum();
    let mut surplus = Vec::new();
    // Those that are not over yet have no bytes.
    for (id, n_own) in sizes.iter().filter(|(_, n_own)| *n_own > 0) {
        if n_bytes <= max {
            break;
        }
        n_bytes -= n_own;
        surplus.push(*id);
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::surplus;

    #[test]
    fn the_oldest_results_make_room_for_the_newest() {
        let sizes = [("a", 5), ("still running", 0), ("b", 3), ("c", 4)];
        let cases: [(usize, &[&str]); 5] =
            [(12, &[]), (11, &["a"]), (7, &["a"]), (4, &["a", "b"]), (3, &["a", "b", "c"])];
        for (max, expected) in cases {
            assert_eq!(surplus(&sizes, max), expected, "{max}");
        }
    }
}
