//! Another plan in the place of the one that is carried out, while calls are under way.
//!
//! What is under way ends on what it began with. A server that both plans have goes on as if nothing had happened; one
//! that is not in the new plan any more is ended after its last call.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::provider::ServerState;
use pegboard_core::redact::Redactor;
use pegboard_core::settings::ServerSettings;
use tokio::time;

use super::plan::{CHAINS, Layout, Plan, StartError};
use super::{PROVIDER_FAREWELL, Runtime, Shared, following};
use crate::event::Event;
use crate::requests::ServerId;
use crate::toolbox::Server;

/// How long servers that take the place of others are waited for before they do.
const HANDOVER: Duration = Duration::from_secs(10);
/// How long the last calls of a server that was replaced may take. They fail then.
const LAST_CALLS: Duration = Duration::from_hours(1);

/// A plan that can be carried out, and servers that are ready to take the place of others.
pub struct Prepared {
    shared: Arc<Shared>,
    layout: Layout,
    secrets: Vec<String>,
}

/// What another plan has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Servers that were not there before.
    pub added: Vec<ServerId>,
    /// Servers that are there no more.
    pub removed: Vec<ServerId>,
    /// Servers that others have taken the place of.
    pub replaced: Vec<ServerId>,
    /// Servers that go on, with other settings for their tools.
    pub adjusted: Vec<ServerId>,
    /// Whether something else is not as it was: settings for all calls, or what toolboxes are for.
    pub settings: bool,
}

impl Changes {
    /// Whether nothing is other than it was.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Runtime {
    /// Gets everything ready for another plan, and changes nothing yet. Whatever is to take the place of a server that
    /// clients know is started now, so that its tools are there when it does; but it is not waited for without end.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use pegboard_core::entry::ToolEntry;
    /// use pegboard_core::provider::Local;
    /// use pegboard_runtime::{Plan, Runtime};
    ///
    /// let says = |name: &str| ToolEntry::new(name, "Says so", |(): ()| async { Ok("so") });
    /// let runtime = Runtime::builder().provide("old", Local::new([says("a")])).start().await?;
    ///
    /// let plan = Plan::new().provide("new", Local::new([says("b")]));
    /// let changes = runtime.prepare(plan).await?.take_effect();
    /// assert_eq!((changes.added.len(), changes.removed.len()), (1, 1));
    /// assert_eq!(&*runtime.catalogue().tools()[0].flat_name, "new__b");
    /// # Ok::<(), pegboard_runtime::StartError>(())
    /// # }).unwrap();
    /// ```
    pub async fn prepare(&self, plan: Plan) -> Result<Prepared, StartError> {
        let (layout, secrets) = plan.check()?;
        let prepared = Prepared { shared: Arc::clone(&self.0), layout, secrets };
        prepared.hand_over().await;
        Ok(prepared)
    }
}

impl Prepared {
    /// Makes servers ready that take the place of others which have been used.
    async fn hand_over(&self) {
        let before = self.shared.layout();
        let is_awaited = |(place, server): &(ServerId, Server)| {
            let other = before.toolboxes.server(&place.toolbox, &place.server);
            other.is_some_and(|other| {
                !other.is_same(server) && (other.is_ready() || !other.offer.borrow().tools.is_empty())
            })
        };
        let awaited = self.layout.toolboxes.servers().filter(is_awaited);
        let opening: Vec<_> = awaited.map(|(_, server)| async move { server.open().await }).collect();
        let opening = stream::iter(opening).buffer_unordered(self.shared.n_starts_at_once());
        // One that cannot be used says so when it is called.
        let _ = time::timeout(HANDOVER, opening.collect::<Vec<_>>()).await;
    }

    /// Puts the plan in the place of the one before, at once: whoever looks sees the one or the other. Says what is
    /// other than before; that is nothing if the runtime has ended in the meantime.
    pub fn take_effect(self) -> Changes {
        let Self { shared, mut layout, secrets } = self;
        let mut built = shared.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.closing.is_cancelled() {
            return Changes::default();
        }
        let before = shared.layout();
        let (changes, new) = layout.follow_on(&before);
        let layout = Arc::new(layout);
        shared.redactor.store(Arc::new(Redactor::new(secrets)));
        // Calls of both plans find their queues until the new plan is all there is.
        shared.queues.add(&layout.settings.queues);
        shared.layout.store(Arc::clone(&layout));
        shared.publish(&layout, layout.toolboxes.shelves(), &mut built);
        shared.queues.configure(&layout.settings.queues);
        drop(built);
        shared.tell_of_catalogue();
        for (place, server) in &new {
            following::follow(&shared, place, server);
        }
        following::start_eager(&shared, new);
        for (place, server) in before.toolboxes.servers() {
            let next = layout.toolboxes.server(&place.toolbox, &place.server);
            if !next.is_some_and(|next| next.usage.is_same(&server.usage)) {
                shared.retire(place, server, &layout);
            }
        }
        changes
    }
}

impl Layout {
    /// Goes on with every server that is the same as before. Gives what has changed, and the servers that are new.
    fn follow_on(&mut self, before: &Self) -> (Changes, Vec<(ServerId, Server)>) {
        self.keep_chains(before);
        let mut changes = Changes {
            settings: self.settings != before.settings || self.descriptions().ne(before.descriptions()),
            ..Changes::default()
        };
        let mut new = Vec::new();
        for (toolbox, contents) in &mut self.toolboxes.0 {
            for (name, server) in &mut contents.servers {
                let place = ServerId { toolbox: toolbox.clone(), server: name.clone() };
                let Some(other) = before.toolboxes.server(toolbox, name) else {
                    changes.added.push(place.clone());
                    new.push((place, server.clone()));
                    continue;
                };
                if other.settings == server.settings {
                    server.settings = Arc::clone(&other.settings);
                } else if other.is_same(server) {
                    changes.adjusted.push(place.clone());
                }
                if other.is_same(server) {
                    *server = other.with_settings(&server.settings);
                } else {
                    changes.replaced.push(place.clone());
                    new.push((place, server.clone()));
                }
            }
        }
        let is_gone = |place: &ServerId| self.toolboxes.server(&place.toolbox, &place.server).is_none();
        changes.removed = before.toolboxes.servers().map(|(place, _)| place).filter(is_gone).collect();
        (changes, new)
    }

    /// Goes on with the chains of every toolbox that has the same ones as before.
    fn keep_chains(&mut self, before: &Self) {
        for (toolbox, chains) in &mut self.chains {
            let Some(other) = before.chains.get(toolbox).filter(|other| other.is_like(chains)) else {
                continue;
            };
            *chains = Arc::clone(other);
            let contents = self.toolboxes.0.get_mut(toolbox);
            if let Some(server) = contents.and_then(|contents| contents.servers.get_mut(CHAINS)) {
                *server = Server::new(chains.provider(), ServerSettings::clone(&server.settings));
            }
        }
    }

    fn descriptions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.toolboxes.0.iter().map(|(name, contents)| (name.as_str(), contents.description.as_str()))
    }
}

impl Shared {
    /// Ends a server that is not in the layout any more, after its last call.
    fn retire(self: &Arc<Self>, place: ServerId, server: Server, layout: &Layout) {
        server.replaced.cancel();
        let (closing, shared) = (self.closing.clone(), Arc::downgrade(self));
        // Somebody may have put the same one elsewhere.
        let goes_on =
            layout.toolboxes.servers().any(|(_, other)| Arc::ptr_eq(&other.provider, &server.provider));
        self.tasks.spawn(async move {
            tokio::select! {
                () = server.usage.over() => {}
                () = closing.cancelled() => {}
                () = time::sleep(LAST_CALLS) => {}
            }
            server.usage.close();
            if goes_on || time::timeout(PROVIDER_FAREWELL, server.provider.shut_down()).await.is_err() {
                return;
            }
            let Some(shared) = shared.upgrade() else { return };
            let is_gone = shared.layout().toolboxes.server(&place.toolbox, &place.server).is_none();
            if is_gone {
                let (toolbox, server) = (place.toolbox.to_string(), place.server.to_string());
                shared.events.emit(|| Event::Server { toolbox, server, state: ServerState::Stopped });
            }
        });
    }
}
