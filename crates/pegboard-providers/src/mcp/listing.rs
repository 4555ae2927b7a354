//! The listing of a server, kept current while it runs.

use std::borrow::Borrow;
use std::future::pending;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
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
use tokio::sync::{Notify, watch};
use tokio::time::{self, Instant};

use super::MAX_REASON_BYTES;
use super::era_lists::{EraLists, ListOrigin, MergedList};
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
    role: ListingRole,
    /// Signals that another instance has reported a change, in the order of [`ListKind::ALL`].
    outdated: [Notify; 4],
    subscriptions: ServerSubscriptions,
    isolation: Arc<UserIsolation>,
    offering: watch::Sender<Arc<ServerOffering>>,
    status: Mutex<ListingStatus>,
    /// Time limit for reading a list.
    read_timeout: Duration,
}

/// Role of an instance in the listing of its server.
enum ListingRole {
    /// The listing of the instance is the published one; the handler executes the calls of its tools.
    Published(Arc<dyn Handler>),
    /// Many clients use the instance, so its lists are published with those of the first one.
    Shared(PublishedListing),
    /// One user has the instance, and its lists may depend on what that user did. Only the fact that one has changed is
    /// reported: the published list is read again.
    Dedicated(PublishedListing),
}

/// Use of an instance other than the one with the published listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FurtherInstance {
    /// The clients of an era share it.
    Shared,
    /// One user has it.
    Dedicated,
}

/// The published listing of a server, as its further instances refer to it. Clones share it.
#[derive(Clone, Default)]
pub(super) struct PublishedListing(Arc<OnceLock<Weak<LiveListingInner>>>);

impl PublishedListing {
    /// Returns the listing; `None` while the server is being created or dropped.
    fn get(&self) -> Option<LiveListing> {
        self.0.get()?.upgrade().map(LiveListing)
    }
}

/// Status of the listing, from which its warnings are derived.
#[derive(Default)]
struct ListingStatus {
    /// The listing comes from the server itself, not from a snapshot.
    is_fresh: bool,
    /// In the order of [`ListKind::ALL`].
    lists: [ListStatus; 4],
    /// Tools by the era of the connection that has listed them.
    tools: EraLists<Arc<ToolEntry>>,
    /// Other items, in the order of [`ListKind::ALL`].
    items: [EraLists<RawJson>; 4],
    /// Lists that have yet to be read, with the generation of the connection.
    unread: (u64, Vec<ListKind>),
    is_split: bool,
}

#[derive(Default)]
struct ListStatus {
    /// Digest of the list as the instance itself has listed it last.
    digest: Option<u64>,
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

    /// Records a list; returns `true` if the instance itself had listed another one before, or none.
    fn record(&mut self, list: ListKind, digest: u64, warnings: Vec<String>, ttl: Option<Duration>) -> bool {
        let recorded = ListStatus { digest: Some(digest), warnings, ttl, problem: None };
        std::mem::replace(&mut self.lists[list as usize], recorded).digest != Some(digest)
    }

    /// Records the tools of a connection, and returns them with those that only the other era has.
    fn merge_tools(
        &mut self,
        client: &McpClient,
        source: ListOrigin,
        tools: Vec<Arc<ToolEntry>>,
    ) -> MergedList<Arc<ToolEntry>> {
        self.tools.merge(client.era(), source, tools, |tool| tool.name().to_owned())
    }

    /// Records other items of a connection, and returns them with those that only the other era has.
    fn merge_items(
        &mut self,
        client: &McpClient,
        source: ListOrigin,
        list: ListKind,
        items: Vec<RawJson>,
    ) -> MergedList<RawJson> {
        let key = |item: &RawJson| {
            let key = item.get(list.id_key());
            key.as_ref().and_then(RawJson::text).map(std::borrow::Cow::into_owned).unwrap_or_default()
        };
        self.items[list as usize].merge(client.era(), source, items, key)
    }

    fn warnings(&self) -> Vec<String> {
        let lists = self.lists.iter().flat_map(|list| list.warnings.iter().chain(&list.problem));
        lists.cloned().chain(self.is_split.then(|| SPLIT_WARNING.to_owned())).collect()
    }
}

impl LiveListing {
    /// Creates the empty listing that is published; `handler` executes the calls of its tools.
    pub(super) fn published(handle: &ServerHandle, handler: Arc<dyn Handler>) -> Self {
        let listing = Self::new(handle, ListingRole::Published(handler));
        // A server has one published listing.
        let _ = handle.published.0.set(Arc::downgrade(&listing.0));
        listing
    }

    /// Creates the listing of a further instance of a server.
    pub(super) fn further(handle: &ServerHandle, used: FurtherInstance) -> Self {
        let published = handle.published.clone();
        Self::new(
            handle,
            match used {
                FurtherInstance::Shared => ListingRole::Shared(published),
                FurtherInstance::Dedicated => ListingRole::Dedicated(published),
            },
        )
    }

    fn new(handle: &ServerHandle, role: ListingRole) -> Self {
        let settings = &handle.settings;
        let offering = ServerOffering { fingerprint: settings.fingerprint(), ..ServerOffering::default() };
        Self(Arc::new(LiveListingInner {
            server: settings.name.clone(),
            role,
            outdated: std::array::from_fn(|_| Notify::new()),
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

    /// Reads the list of tools. That of a dedicated instance has no entries.
    pub(super) async fn read_tools(&self, client: &McpClient) -> Result<FetchedList, RequestError> {
        let handler = match &self.0.role {
            ListingRole::Published(handler) => Some(Arc::clone(handler)),
            ListingRole::Shared(published) => published.get().and_then(|listing| listing.handler()),
            ListingRole::Dedicated(_) => None,
        };
        list::read_tools(client, handler.as_ref()).await
    }

    fn handler(&self) -> Option<Arc<dyn Handler>> {
        match &self.0.role {
            ListingRole::Published(handler) => Some(Arc::clone(handler)),
            ListingRole::Shared(_) | ListingRole::Dedicated(_) => None,
        }
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
            () = live.in_flight().list_changed(list) => self.report_change(list),
            () = self.0.outdated[list as usize].notified() => {}
            () = expired => {}
        }
    }

    /// Has the published list read again, if a further instance reports a change: it may have the same cause.
    fn report_change(&self, list: ListKind) {
        match &self.0.role {
            ListingRole::Published(_) => {}
            ListingRole::Shared(published) | ListingRole::Dedicated(published) => {
                if let Some(published) = published.get() {
                    published.0.outdated[list as usize].notify_one();
                }
            }
        }
    }

    /// Reads a list and publishes it; returns `true` if it has changed.
    async fn refresh(&self, live: &LiveConnection, list: ListKind) -> Result<bool, RequestError> {
        if list == ListKind::Tools {
            let fetched = self.read_tools(live.client()).await?;
            return Ok(self.publish_tools(live, fetched));
        }
        let FetchedList { items, warnings, ttl } = list::read(live.client(), list).await?;
        let digest = digest(items.iter());
        if let Some(publication) = self.publication_of_further(list, digest) {
            if let Some(published) = publication.listing {
                published.replace_items(live, list, items);
            }
            return Ok(publication.is_changed);
        }
        let mut is_changed = false;
        self.modify(|offering, status| {
            is_changed = status.record(list, digest, warnings, ttl);
            status.mark_read(list, offering);
            let source = ListOrigin::Primary(live.generation());
            // Unchanged items are kept once.
            let items = match raw_items(offering, list) {
                Some(old) if *old == items => old.clone(),
                Some(_) | None => items,
            };
            let merged = status.merge_items(live.client(), source, list, items);
            // What another instance has published since stays.
            let is_outdated = is_changed || merged.has_lost_items;
            if let Some(old) = raw_items(offering, list).filter(|_| is_outdated) {
                *old = merged.items;
            }
            offering.instructions = instructions_for(live, offering);
        });
        Ok(is_changed)
    }

    /// Records a list of a further instance; `None` if this is the published listing.
    fn publication_of_further(&self, list: ListKind, digest: u64) -> Option<FurtherPublication> {
        let published = match &self.0.role {
            ListingRole::Published(_) => return None,
            ListingRole::Shared(published) => Some(published),
            ListingRole::Dedicated(_) => None,
        };
        let status = &mut self.0.status.lock().lists[list as usize];
        let before = status.digest.replace(digest);
        let is_changed = before != Some(digest);
        let published = published.filter(|_| is_changed);
        Some(FurtherPublication { is_changed, listing: published.and_then(PublishedListing::get) })
    }

    /// Publishes a list that has changed in another instance.
    fn replace_items(&self, live: &LiveConnection, list: ListKind, items: Vec<RawJson>) {
        self.modify(|offering, status| {
            let merged = status.merge_items(live.client(), ListOrigin::Secondary, list, items);
            if let Some(old) = raw_items(offering, list) {
                *old = merged.items;
            }
            offering.instructions = instructions_for(live, offering);
        });
    }

    /// Publishes the tools that the server listed, in place of the snapshot; returns `true` if they have changed.
    pub(super) fn publish_tools(&self, live: &LiveConnection, fetched: FetchedList) -> bool {
        let client = live.client();
        let FetchedList { items, warnings, ttl } = fetched;
        let digest = digest(items.iter().map(|tool| tool.definition()));
        if let Some(publication) = self.publication_of_further(ListKind::Tools, digest) {
            if let Some(published) = publication.listing {
                published.modify(|offering, status| {
                    offering.tools = status.merge_tools(client, ListOrigin::Secondary, items).items;
                });
            }
            return publication.is_changed;
        }
        let mut is_changed = false;
        self.modify(|offering, status| {
            let was_known = (status.is_fresh || offering.is_stale) && !offering.is_partial;
            status.is_fresh = true;
            status.is_split = self.0.isolation.is_split();
            is_changed = status.record(ListKind::Tools, digest, warnings, ttl);
            // Unchanged tools keep their entries, and what was learnt about them; what another instance has published
            // since stays.
            // Unchanged tools are kept once.
            let items = if are_same_tools(&items, &offering.tools) { offering.tools.clone() } else { items };
            let merged = status.merge_tools(client, ListOrigin::Primary(live.generation()), items);
            let is_outdated = is_changed || merged.has_lost_items;
            if is_outdated && !are_same_tools(&merged.items, &offering.tools) {
                offering.tools = merged.items;
            }
            for list in ListKind::ALL.into_iter().filter(|list| !list.is_offered_by(client)) {
                if let Some(items) = raw_items(offering, list) {
                    items.clear();
                    status.lists[list as usize] = ListStatus::default();
                    status.items[list as usize] = EraLists::default();
                }
            }
            if status.unread.0 != live.generation() {
                // Until they are read again, the last known lists count: names must not change with every restart.
                let others = [ListKind::Prompts, ListKind::Resources, ListKind::Templates];
                let is_unread = |list: &ListKind| !was_known && list.is_offered_by(client);
                status.unread = (live.generation(), others.into_iter().filter(is_unread).collect());
            }
            offering.is_partial = !status.unread.1.is_empty();
            offering.features = features(client);
            offering.extensions = client.server().capabilities.get("extensions").filter(RawJson::is_object);
            offering.experimental =
                client.server().capabilities.get("experimental").filter(RawJson::is_object);
            offering.instructions = instructions_for(live, offering);
            offering.is_stale = false;
        });
        is_changed
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
        if self.handler().is_none() {
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

/// A list that a further instance has read.
struct FurtherPublication {
    is_changed: bool,
    /// The listing to publish it in, if it is to be published.
    listing: Option<LiveListing>,
}

/// Returns a digest of a list, to recognize the same one.
fn digest(items: impl Iterator<Item = impl Borrow<RawJson>>) -> u64 {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    let mut hasher = STATE.build_hasher();
    for item in items {
        let bytes = item.borrow().as_bytes();
        hasher.write_usize(bytes.len());
        hasher.write(bytes);
    }
    hasher.finish()
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
