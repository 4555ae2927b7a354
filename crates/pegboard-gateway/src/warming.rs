//! Servers that are made ready for a list, and how long the list waits for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use pegboard_core::provider::ServerState;
use pegboard_runtime::Memory;
use tokio::sync::watch;
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::profile::Board;

/// How long a list waits if no server comes up at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for others after one has come up: as a part of the time that one took, and at least this long.
const PART: u32 = 7;
const AT_LEAST: Duration = Duration::from_millis(20);

/// How long is waited for lists beside those of tools.
const WHOLE: Duration = Duration::from_secs(1);

/// Whether and how servers are made ready for a list.
#[derive(Default)]
pub(crate) struct WarmUp(Mutex<Option<Warming>>);

impl WarmUp {
    /// Makes all servers of a board ready, once.
    pub(crate) fn begin(&self, board: &Arc<Board>) {
        self.lock().get_or_insert_with(|| Warming::begin(board));
    }

    /// Makes those ready that have come since, if it was ever begun.
    pub(crate) fn again(&self, board: &Arc<Board>) {
        if let Some(warming) = &mut *self.lock() {
            *warming = Warming::begin(board);
        }
    }

    /// Waits until a list is as good as it can be soon, if anything was begun for it.
    pub(crate) fn settled(&self, board: &Arc<Board>) -> impl Future<Output = ()> + use<> {
        let settled = self.lock().as_ref().map(|warming| warming.settled(board));
        async move {
            if let Some(settled) = settled {
                settled.await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Warming>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Servers that are being made ready.
struct Warming {
    begun: Instant,
    progress: watch::Receiver<Progress>,
    _work: AbortOnDropHandle<()>,
}

/// How far that is.
#[derive(Clone, Copy, Default)]
struct Progress {
    is_done: bool,
    /// When a server came up last.
    came_up: Option<Instant>,
}

impl Warming {
    /// Makes all servers of a board ready.
    fn begin(board: &Arc<Board>) -> Self {
        let (told, progress) = watch::channel(Progress::default());
        let mut catalogues = board.runtime.catalogue_changes();
        let board = Arc::clone(board);
        let work = tokio::spawn(async move {
            let caller = board.caller(Memory::Everything);
            let toolboxes = board.toolboxes();
            let opening = join_all(toolboxes.iter().map(|toolbox| caller.open(toolbox.name.as_str())));
            let following = async {
                while catalogues.changed().await.is_ok() {
                    told.send_modify(|progress| progress.came_up = Some(Instant::now()));
                }
                std::future::pending::<()>().await;
            };
            let opened = tokio::select! {
                opened = opening => opened,
                () = following => return,
            };
            for (toolbox, opened) in toolboxes.iter().zip(opened) {
                if let Err(error) = opened {
                    tracing::warn!(toolbox = %toolbox.name, %error, "A toolbox could not be opened.");
                }
            }
            told.send_modify(|progress| progress.is_done = true);
        });
        Self { begun: Instant::now(), progress, _work: AbortOnDropHandle::new(work) }
    }

    /// Waits until the list is as good as it can be soon; what comes later is told as a change.
    ///
    /// Servers of which it is known what they offered last are not waited for. Nor are those that take much longer than
    /// the others: one that hangs must not be noticed by anybody.
    fn settled(&self, board: &Arc<Board>) -> impl Future<Output = ()> + use<> {
        let (begun, mut progress, board) = (self.begun, self.progress.clone(), Arc::clone(board));
        async move {
            loop {
                let Progress { is_done, came_up } = *progress.borrow_and_update();
                if is_done || !is_awaited(&board) {
                    return;
                }
                let limit = match came_up {
                    Some(at) => at + (at.duration_since(begun) / PART).max(AT_LEAST),
                    None => begun + PATIENCE,
                };
                match time::timeout_at(limit, progress.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return,
                }
            }
        }
    }
}

/// Whether there is a server of which nobody knows what it offers, and that may say so soon.
pub(crate) fn is_awaited(board: &Board) -> bool {
    board.runtime.servers().iter().any(|server| {
        let is_coming = matches!(server.state, ServerState::Idle | ServerState::Starting);
        is_coming && server.n_tools == 0 && board.has(&server.toolbox)
    })
}

/// Waits a little until all that a server lists beside its tools has been read.
pub(crate) async fn whole(board: &Arc<Board>) {
    let mut catalogues = board.runtime.catalogue_changes();
    let is_being_read =
        || board.runtime.servers().iter().any(|server| server.is_partial && board.has(&server.toolbox));
    // The catalogue is a little behind the servers, and it is what is listed.
    let is_behind = || {
        let snapshot = board.runtime.catalogue();
        snapshot.shelves().any(|(shelf, _)| shelf.offer.is_partial && board.has(&shelf.toolbox))
    };
    let is_partial = || is_being_read() || is_behind();
    let reading = async { while is_partial() && catalogues.changed().await.is_ok() {} };
    // What comes later is told as a change.
    let _ = time::timeout(WHOLE, reading).await;
}
