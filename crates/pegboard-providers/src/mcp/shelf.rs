//! What a server offers, kept up to date while it runs.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use pegboard_core::entry::ToolEntry;
use pegboard_core::handler::Handler;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Features, Offer};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::Failure;
use pegboard_wire::client::Client;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use super::MAX_WHY_BYTES;
use super::instructions::instructions;
use super::life::{Life, Live};
use super::list::{self, List, Listed};
use super::listen::{listen, may_watch, tells_changes};
use super::traffic::ASKS;
use super::wishes::Wishes;

/// How long at least between two readings of a list.
const MIN_GAP: Duration = Duration::from_millis(100);
/// How long at most, for a server that says again and again that its list changed, when it did not.
const MAX_GAP: Duration = Duration::from_secs(10);
/// How long a list is kept at least.
const MIN_KEEP: Duration = Duration::from_secs(10);

/// What a server offers. Clones are the same.
#[derive(Clone)]
pub(super) struct Shelf(Arc<Inner>);

struct Inner {
    server: ServerName,
    handler: Arc<dyn Handler>,
    wishes: Wishes,
    offer: watch::Sender<Arc<Offer>>,
    notes: Mutex<Notes>,
    /// How long a list may take to be read.
    limit: Duration,
}

/// What is to be said about the lists, beside what they hold.
#[derive(Default)]
struct Notes {
    /// Whether the server itself said what it offers.
    is_fresh: bool,
    /// In the order of [`List::ALL`].
    lists: [Note; 4],
    /// Which lists have yet to be read, of which start of the server.
    unread: (u64, Vec<List>),
    has_asked: bool,
}

#[derive(Default)]
struct Note {
    warnings: Vec<String>,
    /// How long the list may be kept, if the server says so.
    keep: Option<Duration>,
    /// Why the list may not be the newest.
    problem: Option<String>,
}

impl Notes {
    /// A list was read, or cannot be.
    fn note_read(&mut self, list: List, offer: &mut Offer) {
        self.unread.1.retain(|unread| *unread != list);
        offer.is_partial = !self.unread.1.is_empty();
    }

    fn lines(&self) -> Vec<String> {
        let lists = self.lists.iter().flat_map(|note| note.warnings.iter().chain(&note.problem));
        lists.cloned().chain(self.has_asked.then(|| ASKS.to_owned())).collect()
    }
}

impl Shelf {
    /// The shelf of a server whose calls `handler` carries out. Nothing is on it yet.
    pub(super) fn new(life: &Life, handler: Arc<dyn Handler>) -> Self {
        let settings = &life.settings;
        let offer = Offer { fingerprint: settings.fingerprint(), ..Offer::default() };
        Self(Arc::new(Inner {
            server: settings.name.clone(),
            handler,
            wishes: life.wishes.clone(),
            offer: watch::Sender::new(Arc::new(offer)),
            notes: Mutex::default(),
            limit: settings.start_timeout,
        }))
    }

    /// What is offered, now and after every change.
    pub(super) fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.0.offer.subscribe()
    }

    /// What carries out the calls of the tools on it.
    pub(super) fn handler(&self) -> &Arc<dyn Handler> {
        &self.0.handler
    }

    /// Reads the whole list of tools.
    pub(super) async fn read(&self, client: &Client) -> Result<Listed, Failure> {
        list::read_tools(client, &self.0.handler).await
    }

    /// Keeps what is offered up to date. Never ends.
    pub(super) async fn follow(&self, live: &Live) {
        let lists = join_all(List::ALL.map(|list| self.follow_list(live, list)));
        tokio::join!(lists, self.note_asking(live), listen(live, &self.0.wishes).boxed());
    }

    /// Reads a list again whenever it is not what it was: one reading at a time, at most one to come.
    async fn follow_list(&self, live: &Live, list: List) {
        match list {
            // It was read when the server was started.
            List::Tools => self.outdated(live, list).await,
            List::Prompts | List::Resources | List::Templates if list.is_offered_by(live.client()) => {}
            List::Prompts | List::Resources | List::Templates => return pending().await,
        }
        let mut gap = MIN_GAP;
        loop {
            let begun = Instant::now();
            let problem = match time::timeout(self.0.limit, self.refresh(live, list)).await {
                Ok(Ok(is_news)) => {
                    // One that cries for nothing is heard less often.
                    gap = if is_news { MIN_GAP } else { (gap * 2).min(MAX_GAP) };
                    None
                }
                Ok(Err(failure)) => Some(failure.to_string()),
                Err(_elapsed) => Some("the server took too long".to_owned()),
            };
            if let Some(problem) = problem {
                let (name, problem) = (list.name(), clipped(&problem, MAX_WHY_BYTES));
                let warning =
                    format!("the list of {name} may not be the newest; reading it ended with: {problem}");
                tracing::warn!(server = %self.0.server, "{warning}");
                self.change(|offer, notes| {
                    notes.lists[list as usize].problem = Some(warning);
                    notes.note_read(list, offer);
                });
            }
            // A list that takes long to read and changes all the time must not take all the time.
            time::sleep(gap.max(begun.elapsed().saturating_mul(10)).min(MAX_GAP)).await;
            self.outdated(live, list).await;
        }
    }

    /// Waits until a list is not what it was, or has been kept for as long as it may be by one who would not be told.
    async fn outdated(&self, live: &Live, list: List) {
        let keep = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner).lists[list as usize].keep;
        // One that may not be kept at all is kept nevertheless: to serve lists is what a catalogue is for.
        let keep = keep.filter(|keep| !keep.is_zero() && !tells_changes(live.client(), list));
        let kept = async {
            match keep {
                Some(keep) => time::sleep(keep.max(MIN_KEEP)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = live.traffic().change(list) => {}
            () = kept => {}
        }
    }

    /// Reads a list and offers it; whether it is another than before.
    async fn refresh(&self, live: &Live, list: List) -> Result<bool, Failure> {
        if list == List::Tools {
            let listed = self.read(live.client()).await?;
            let is_news = !is_same(&listed.items, &self.0.offer.borrow().tools);
            self.put(live, listed);
            return Ok(is_news);
        }
        let Listed { items, warnings, keep } = list::read(live.client(), list).await?;
        let mut is_news = false;
        self.change(|offer, notes| {
            notes.lists[list as usize] = Note { warnings, keep, problem: None };
            notes.note_read(list, offer);
            if let Some(old) = raw(offer, list) {
                is_news = *old != items;
                *old = items;
            }
            offer.instructions = told(live, offer);
        });
        Ok(is_news)
    }

    /// Offers the tools that a server listed, in place of what it offered when it was last there.
    pub(super) fn put(&self, live: &Live, listed: Listed) {
        let client = live.client();
        self.change(|offer, notes| {
            notes.is_fresh = true;
            notes.has_asked = live.traffic().has_asked();
            notes.lists[List::Tools as usize] =
                Note { warnings: listed.warnings, keep: listed.keep, problem: None };
            // What was learnt about a tool stays with its entry.
            if !is_same(&listed.items, &offer.tools) {
                offer.tools = listed.items;
            }
            for list in List::ALL.into_iter().filter(|list| !list.is_offered_by(client)) {
                if let Some(items) = raw(offer, list) {
                    items.clear();
                    notes.lists[list as usize] = Note::default();
                }
            }
            if notes.unread.0 != live.number() {
                let others = [List::Prompts, List::Resources, List::Templates];
                let unread = others.into_iter().filter(|list| list.is_offered_by(client)).collect();
                notes.unread = (live.number(), unread);
            }
            offer.is_partial = !notes.unread.1.is_empty();
            offer.features = features(client);
            offer.extensions = client.server().capabilities.get("extensions").filter(RawJson::is_object);
            offer.instructions = told(live, offer);
            offer.is_stale = false;
        });
    }

    /// Offers what a server offered when it was last there, unless it has said itself what it offers.
    pub(super) fn put_stale(&self, last_known: Offer) {
        self.change(|offer, notes| {
            if !notes.is_fresh {
                let fingerprint = std::mem::take(&mut offer.fingerprint);
                *offer = Offer { fingerprint, is_stale: true, ..last_known };
            }
        });
    }

    /// Whether the server itself said what it offers.
    pub(super) fn is_fresh(&self) -> bool {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner).is_fresh
    }

    async fn note_asking(&self, live: &Live) {
        loop {
            live.traffic().asked().await;
            tracing::warn!(server = %self.0.server, "{ASKS}");
            self.change(|_, notes| notes.has_asked = true);
        }
    }

    /// Changes what is offered, and tells everybody if that is news.
    fn change(&self, change: impl FnOnce(&mut Offer, &mut Notes)) {
        // Held until everybody was told, so that changes are told in the order in which they were made.
        let mut notes = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Offer::clone(&self.0.offer.borrow());
        change(&mut next, &mut notes);
        next.warnings = notes.lines();
        self.0.offer.send_if_modified(|old| {
            let is_news = is_news(&next, old);
            if is_news {
                *old = Arc::new(next);
            }
            is_news
        });
    }
}

/// The part of an offer that a list fills as it is written; none for the tools, which are more than that.
fn raw(offer: &mut Offer, list: List) -> Option<&mut Vec<RawJson>> {
    match list {
        List::Tools => None,
        List::Prompts => Some(&mut offer.prompts),
        List::Resources => Some(&mut offer.resources),
        List::Templates => Some(&mut offer.templates),
    }
}

fn told(live: &Live, offer: &Offer) -> Option<String> {
    instructions(live.client().server().instructions.as_deref(), &offer.prompts)
}

fn features(client: &Client) -> Features {
    let has = |name: &str| client.server().capabilities.get(name).is_some_and(|value| value.is_object());
    Features { completions: has("completions"), subscriptions: may_watch(client), logging: has("logging") }
}

fn is_news(new: &Offer, old: &Offer) -> bool {
    (new.is_stale, new.is_partial, new.features) != (old.is_stale, old.is_partial, old.features)
        || !is_same(&new.tools, &old.tools)
        || (&new.prompts, &new.resources, &new.templates) != (&old.prompts, &old.resources, &old.templates)
        || (&new.instructions, &new.warnings) != (&old.instructions, &old.warnings)
        || new.extensions != old.extensions
}

fn is_same(some: &[Arc<ToolEntry>], others: &[Arc<ToolEntry>]) -> bool {
    some.len() == others.len()
        && some
            .iter()
            .zip(others)
            .all(|(one, other)| Arc::ptr_eq(one, other) || one.definition() == other.definition())
}
