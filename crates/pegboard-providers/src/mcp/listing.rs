//! The listing of a server, kept current while it runs.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use parking_lot::Mutex;
use pegboard_core::entry::ToolEntry;
use pegboard_core::handler::Handler;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{ServerFeatures, ServerOffering};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::RequestError;
use pegboard_wire::client::McpClient;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use super::MAX_REASON_BYTES;
use super::handle::{LiveConnection, ServerHandle};
use super::instructions::instructions;
use super::isolation::{SPLIT_WARNING, UserIsolation};
use super::list::{self, FetchedList, ListKind};
use super::listen::{listen, notifies_list_changes, supports_subscriptions};
use super::subscriptions::ServerSubscriptions;

/// Minimum interval between two reads of a list.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum interval, for a server that reports changes without any.
const MAX_READ_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time to live of a list.
const MIN_TTL: Duration = Duration::from_secs(10);

/// The published listing of a server. Clones share it.
#[derive(Clone)]
pub(super) struct LiveListing(Arc<LiveListingInner>);

struct LiveListingInner {
    server: ServerName,
    /// Handler of the tools; `None` for a dedicated instance: calls come through the shared listing.
    handler: Option<Arc<dyn Handler>>,
    subscriptions: ServerSubscriptions,
    isolation: Arc<UserIsolation>,
    offering: watch::Sender<Arc<ServerOffering>>,
    status: Mutex<ListingStatus>,
    /// Time limit for reading a list.
    read_timeout: Duration,
}

/// Status of the listing, from which its warnings are derived.
#[derive(Default)]
struct ListingStatus {
    /// The listing comes from the server itself, not from a snapshot.
    is_fresh: bool,
    /// In the order of [`ListKind::ALL`].
    lists: [ListStatus; 4],
    /// Lists that have yet to be read, with the generation of the connection.
    unread: (u64, Vec<ListKind>),
    is_split: bool,
}

#[derive(Default)]
struct ListStatus {
    warnings: Vec<String>,
    /// Time to live, if the server declares one.
    ttl: Option<Duration>,
    /// Warning that the list may be outdated.
    problem: Option<String>,
}

impl ListingStatus {
    /// Records that a list was read, or cannot be.
    fn mark_read(&mut self, list: ListKind, offering: &mut ServerOffering) {
        self.unread.1.retain(|unread| *unread != list);
        offering.is_partial = !self.unread.1.is_empty();
    }

    fn warnings(&self) -> Vec<String> {
        let lists = self.lists.iter().flat_map(|list| list.warnings.iter().chain(&list.problem));
        lists.cloned().chain(self.is_split.then(|| SPLIT_WARNING.to_owned())).collect()
    }
}

impl LiveListing {
    /// Creates an empty listing; `handler` executes the calls of its tools. Without one it has no tools.
    pub(super) fn new(handle: &ServerHandle, handler: Option<Arc<dyn Handler>>) -> Self {
        let settings = &handle.settings;
        let offering = ServerOffering { fingerprint: settings.fingerprint(), ..ServerOffering::default() };
        Self(Arc::new(LiveListingInner {
            server: settings.name.clone(),
            handler,
            subscriptions: handle.subscriptions.clone(),
            isolation: Arc::clone(&handle.isolation),
            offering: watch::Sender::new(Arc::new(offering)),
            status: Mutex::default(),
            read_timeout: settings.start_timeout,
        }))
    }

    /// Returns a receiver of the listing and every change.
    pub(super) fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.0.offering.subscribe()
    }

    /// Reads the list of tools.
    pub(super) async fn read_tools(&self, client: &McpClient) -> Result<FetchedList, RequestError> {
        list::read_tools(client, self.0.handler.as_ref()).await
    }

    /// Keeps the listing current. Never completes.
    pub(super) async fn keep_current(&self, live: &LiveConnection) {
        let lists = join_all(ListKind::ALL.map(|list| self.refresh_on_change(live, list)));
        tokio::join!(lists, self.warn_of_split(), listen(live, &self.0.subscriptions).boxed());
    }

    /// Reads a list again whenever it is outdated: one read at a time, at most one pending.
    async fn refresh_on_change(&self, live: &LiveConnection, list: ListKind) {
        match list {
            // It was read during the start.
            ListKind::Tools => self.wait_until_outdated(live, list).await,
            ListKind::Prompts | ListKind::Resources | ListKind::Templates
                if list.is_offered_by(live.client()) => {}
            ListKind::Prompts | ListKind::Resources | ListKind::Templates => return pending().await,
        }
        let mut interval = MIN_READ_INTERVAL;
        loop {
            let started_at = Instant::now();
            let problem = match time::timeout(self.0.read_timeout, self.refresh(live, list)).await {
                Ok(Ok(is_changed)) => {
                    // A server that reports changes without any is read less often.
                    interval =
                        if is_changed { MIN_READ_INTERVAL } else { (interval * 2).min(MAX_READ_INTERVAL) };
                    None
                }
                Ok(Err(failure)) => Some(failure.to_string()),
                Err(_elapsed) => Some("the request timed out".to_owned()),
            };
            if let Some(problem) = problem {
                let (name, problem) = (list.name(), clipped(&problem, MAX_REASON_BYTES));
                let warning = format!("the list of {name} may be outdated; reading it failed: {problem}");
                tracing::warn!(server = %self.0.server, "{warning}");
                self.modify(|offering, status| {
                    status.lists[list as usize].problem = Some(warning);
                    status.mark_read(list, offering);
                });
            }
            // A list that is slow to read and changes all the time must not keep the server busy.
            time::sleep(interval.max(started_at.elapsed().saturating_mul(10)).min(MAX_READ_INTERVAL)).await;
            self.wait_until_outdated(live, list).await;
        }
    }

    /// Waits until a list has changed, or has expired on a server that sends no change notifications.
    async fn wait_until_outdated(&self, live: &LiveConnection, list: ListKind) {
        let ttl = self.0.status.lock().lists[list as usize].ttl;
        // A time to live of zero is ignored: serving cached lists is the purpose of a catalogue.
        let ttl = ttl.filter(|ttl| !ttl.is_zero() && !notifies_list_changes(live.client(), list));
        let expired = async {
            match ttl {
                Some(ttl) => time::sleep(ttl.max(MIN_TTL)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = live.in_flight().list_changed(list) => {}
            () = expired => {}
        }
    }

    /// Reads a list and publishes it; returns `true` if it has changed.
    async fn refresh(&self, live: &LiveConnection, list: ListKind) -> Result<bool, RequestError> {
        if list == ListKind::Tools {
            let fetched = self.read_tools(live.client()).await?;
            let is_changed = !are_same_tools(&fetched.items, &self.0.offering.borrow().tools);
            self.publish_tools(live, fetched);
            return Ok(is_changed);
        }
        let FetchedList { items, warnings, ttl } = list::read(live.client(), list).await?;
        let mut is_changed = false;
        self.modify(|offering, status| {
            status.lists[list as usize] = ListStatus { warnings, ttl, problem: None };
            status.mark_read(list, offering);
            if let Some(old) = raw_items(offering, list) {
                is_changed = *old != items;
                *old = items;
            }
            offering.instructions = instructions_for(live, offering);
        });
        Ok(is_changed)
    }

    /// Publishes the tools that the server listed, in place of the snapshot.
    pub(super) fn publish_tools(&self, live: &LiveConnection, fetched: FetchedList) {
        let client = live.client();
        self.modify(|offering, status| {
            status.is_fresh = true;
            status.is_split = self.0.isolation.is_split();
            status.lists[ListKind::Tools as usize] =
                ListStatus { warnings: fetched.warnings, ttl: fetched.ttl, problem: None };
            // Unchanged tools keep their entries, and what was learnt about them.
            if !are_same_tools(&fetched.items, &offering.tools) {
                offering.tools = fetched.items;
            }
            for list in ListKind::ALL.into_iter().filter(|list| !list.is_offered_by(client)) {
                if let Some(items) = raw_items(offering, list) {
                    items.clear();
                    status.lists[list as usize] = ListStatus::default();
                }
            }
            if status.unread.0 != live.generation() {
                let others = [ListKind::Prompts, ListKind::Resources, ListKind::Templates];
                let unread = others.into_iter().filter(|list| list.is_offered_by(client)).collect();
                status.unread = (live.generation(), unread);
            }
            offering.is_partial = !status.unread.1.is_empty();
            offering.features = features(client);
            offering.extensions = client.server().capabilities.get("extensions").filter(RawJson::is_object);
            offering.experimental =
                client.server().capabilities.get("experimental").filter(RawJson::is_object);
            offering.instructions = instructions_for(live, offering);
            offering.is_stale = false;
        });
    }

    /// Publishes a snapshot of an earlier listing, unless the server has been listed already.
    pub(super) fn publish_snapshot(&self, last_known: ServerOffering) {
        self.modify(|offering, status| {
            if !status.is_fresh {
                let fingerprint = std::mem::take(&mut offering.fingerprint);
                *offering = ServerOffering { fingerprint, is_stale: true, ..last_known };
            }
        });
    }

    /// Returns `true` if the listing comes from the server itself.
    pub(super) fn is_fresh(&self) -> bool {
        self.0.status.lock().is_fresh
    }

    /// Adds a warning once users have separate instances. Only the published listing shows it.
    async fn warn_of_split(&self) {
        if self.0.handler.is_none() {
            return pending().await;
        }
        loop {
            self.0.isolation.split().await;
            self.modify(|_, status| status.is_split = true);
        }
    }

    /// Modifies the listing and publishes it if it has changed.
    fn modify(&self, modify: impl FnOnce(&mut ServerOffering, &mut ListingStatus)) {
        // Held until the listing is published, so that changes are published in order.
        let mut status = self.0.status.lock();
        let mut next = ServerOffering::clone(&self.0.offering.borrow());
        modify(&mut next, &mut status);
        next.warnings = status.warnings();
        self.0.offering.send_if_modified(|old| {
            let is_changed = is_changed(&next, old);
            if is_changed {
                *old = Arc::new(next);
            }
            is_changed
        });
    }
}

/// Returns the items of a list that are kept as raw JSON; `None` for tools.
fn raw_items(offering: &mut ServerOffering, list: ListKind) -> Option<&mut Vec<RawJson>> {
    match list {
        ListKind::Tools => None,
        ListKind::Prompts => Some(&mut offering.prompts),
        ListKind::Resources => Some(&mut offering.resources),
        ListKind::Templates => Some(&mut offering.templates),
    }
}

fn instructions_for(live: &LiveConnection, offering: &ServerOffering) -> Option<String> {
    instructions(live.client().server().instructions.as_deref(), &offering.prompts)
}

fn features(client: &McpClient) -> ServerFeatures {
    let has = |name: &str| client.server().capabilities.get(name).is_some_and(|value| value.is_object());
    ServerFeatures {
        completions: has("completions"),
        subscriptions: supports_subscriptions(client),
        logging: has("logging"),
    }
}

fn is_changed(new: &ServerOffering, old: &ServerOffering) -> bool {
    (new.is_stale, new.is_partial, new.features) != (old.is_stale, old.is_partial, old.features)
        || !are_same_tools(&new.tools, &old.tools)
        || (&new.prompts, &new.resources, &new.templates) != (&old.prompts, &old.resources, &old.templates)
        || (&new.instructions, &new.warnings) != (&old.instructions, &old.warnings)
        || (&new.extensions, &new.experimental) != (&old.extensions, &old.experimental)
}

fn are_same_tools(some: &[Arc<ToolEntry>], others: &[Arc<ToolEntry>]) -> bool {
    some.len() == others.len()
        && some
            .iter()
            .zip(others)
            .all(|(one, other)| Arc::ptr_eq(one, other) || one.definition() == other.definition())
}
