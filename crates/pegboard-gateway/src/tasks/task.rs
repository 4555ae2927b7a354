//! One task: a call that is kept, and what its client may know of it.

use std::time::{Duration, SystemTime};

use pegboard_json::RawJson;
use pegboard_runtime::wall::WallClock;
use pegboard_wire::server::Change;
use tokio::sync::{broadcast, watch};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::end::End;
use super::open::Open;
use super::{Form, words};
use crate::visit::conversation::Round;

/// How often a client may look after a task whose server does not say how often.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One task.
pub(crate) struct Task {
    id: String,
    form: Form,
    created: SystemTime,
    pub(super) time_to_live: Duration,
    pub(super) poll_interval: Duration,
    pub(super) expires: Instant,
    /// Its client wants it called off.
    pub(super) cancelled: CancellationToken,
    state: watch::Sender<State>,
    wall: WallClock,
    changes: broadcast::Sender<Change>,
}

/// How a task stands.
pub(super) struct State {
    pub(super) open: Open,
    pub(super) end: Option<End>,
    /// What it does now, for a person.
    pub(super) message: Option<String>,
    /// When it last changed.
    pub(super) updated: SystemTime,
}

impl Task {
    pub(super) fn new(
        form: Form,
        time_to_live: Duration,
        poll_interval: Option<Duration>,
        wall: WallClock,
        changes: broadcast::Sender<Change>,
    ) -> Self {
        let created = wall.now();
        Self {
            id: Uuid::new_v4().simple().to_string(),
            form,
            created,
            time_to_live,
            poll_interval: poll_interval.unwrap_or(POLL_INTERVAL),
            expires: Instant::now() + time_to_live,
            cancelled: CancellationToken::new(),
            state: watch::Sender::new(State {
                open: Open::default(),
                end: None,
                message: None,
                updated: created,
            }),
            wall,
            changes,
        }
    }

    /// What its client knows it by. It cannot be guessed.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whose it is.
    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    pub(super) fn created(&self) -> SystemTime {
        self.created
    }

    /// Looks at how it stands. Nothing that waits may be done meanwhile.
    pub(super) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.borrow())
    }

    /// Waits until it has ended, and says how; nothing if it asks something before that.
    pub(super) async fn settled(&self) -> Option<End> {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| state.end.is_some() || !state.open.is_empty());
        match time::timeout_at(self.expires, settled).await {
            Ok(Ok(state)) => state.end.clone(),
            Ok(Err(_)) | Err(_) => Some(End::expired()),
        }
    }

    /// Notes what it says of itself. Whoever wants to know looks; nobody is woken for it.
    pub(super) fn say(&self, message: String) {
        self.state.send_if_modified(|state| {
            if state.end.is_none() {
                state.message = Some(message);
                state.updated = self.wall.now();
            }
            false
        });
    }

    /// Asks its client something.
    pub(super) fn ask(&self, round: Round) {
        self.change(|state| {
            state.open.ask(round);
            true
        });
    }

    /// Takes the client's answers to what is asked right now.
    pub(super) fn take_answers(&self, answers: &RawJson) {
        self.change(|state| state.open.answer(answers));
    }

    /// Calls it off; `false` if it was over already.
    pub(super) fn cancel(&self) -> bool {
        let is_cancelled = self.end(End::Cancelled);
        self.cancelled.cancel();
        is_cancelled
    }

    /// Ends it; `false` if it was over already.
    pub(super) fn end(&self, end: End) -> bool {
        self.change(|state| {
            state.open = Open::default();
            state.message = None;
            state.end = Some(end);
            true
        })
    }

    /// Changes how it stands and tells of it, unless it is over; whether there was a change.
    fn change(&self, change: impl FnOnce(&mut State) -> bool) -> bool {
        let is_changed = self.state.send_if_modified(|state| {
            let is_changed = state.end.is_none() && change(state);
            if is_changed {
                state.updated = self.wall.now();
            }
            is_changed
        });
        if is_changed {
            // With nobody listening it is simply lost.
            let _ = self.changes.send(Change::Task { id: self.id.clone(), state: words::detailed(self) });
        }
        is_changed
    }
}
