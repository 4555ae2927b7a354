//! The queues by name, and which of them a call goes through.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use indexmap::IndexMap;
use pegboard_core::error::CallError;
use pegboard_core::provider::ToolKind;
use pegboard_core::settings::QueueSettings;

use crate::event::Event;
use crate::flight::Flight;
use crate::queue::{Queue, Settings};

/// The queue of tools that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// A queue and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct NamedQueue {
    pub(crate) name: Arc<str>,
    pub(crate) queue: Queue,
    /// How long a call in it may run.
    pub(crate) default_timeout: Option<Duration>,
    /// How long a call may wait for a slot.
    pub(crate) wait_timeout: Option<Duration>,
    /// How many slots all processes share, if they do.
    pub(crate) shared_slots: Option<usize>,
}

impl NamedQueue {
    pub(crate) fn depth(&self) -> Event {
        let depth = self.queue.depth();
        Event::QueueDepth {
            queue: Arc::clone(&self.name),
            capacity: depth.capacity,
            in_use: depth.in_use,
            waiting: depth.waiting,
        }
    }
}

/// The queues there are at one time.
pub(crate) type QueueMap = HashMap<Arc<str>, NamedQueue>;

/// The queues there are.
#[derive(Debug, Default)]
pub(crate) struct Queues(ArcSwap<QueueMap>);

impl Queues {
    pub(crate) fn new(settings: &IndexMap<String, QueueSettings>) -> Self {
        let queues = Self::default();
        queues.configure(settings);
        queues
    }

    /// The queues there are now.
    pub(crate) fn load(&self) -> Arc<QueueMap> {
        self.0.load_full()
    }

    /// Changes the queues while they are in use: those that stay keep whoever waits in them.
    pub(crate) fn configure(&self, settings: &IndexMap<String, QueueSettings>) {
        let before = self.0.load_full();
        self.0.store(Arc::new(next(&before, settings)));
    }

    /// Changes the queues of these names, and leaves all others as they are.
    pub(crate) fn add(&self, settings: &IndexMap<String, QueueSettings>) {
        let mut queues = QueueMap::clone(&self.0.load());
        let changed = next(&queues, settings);
        queues.extend(changed);
        self.0.store(Arc::new(queues));
    }

    /// The queue that a call goes through, if it goes through one that is there.
    pub(crate) fn of(&self, flight: &Flight) -> Option<NamedQueue> {
        self.find(flight, name(flight)?)
    }

    /// The queue that a call goes through, or why it cannot.
    pub(crate) fn wanted(&self, flight: &Flight) -> Result<Option<NamedQueue>, CallError> {
        let Some(name) = name(flight) else { return Ok(None) };
        match self.find(flight, name) {
            Some(queue) => Ok(Some(queue)),
            // Without a configuration this one has no limit.
            None if name == DEFAULT_QUEUE => Ok(None),
            None => Err(CallError::QueueTimeout {
                queue: name.to_owned(),
                reason: "is not configured. Add it under queues".to_owned(),
            }),
        }
    }

    /// A queue as it was when the tool of a call was found: its tool may be of a configuration whose queues are gone.
    fn find(&self, flight: &Flight, name: &str) -> Option<NamedQueue> {
        flight.queues.get(name).or(self.0.load().get(name)).cloned()
    }

    /// How busy every queue is, by name.
    pub(crate) fn depths(&self) -> Vec<Event> {
        let queues = self.0.load();
        let mut queues: Vec<_> = queues.values().collect();
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        queues.into_iter().map(NamedQueue::depth).collect()
    }
}

/// The queues of these settings. Those that were there before are the same, with another size.
fn next(before: &QueueMap, settings: &IndexMap<String, QueueSettings>) -> QueueMap {
    let now = settings.iter().map(|(name, settings)| {
        let name: Arc<str> = name.as_str().into();
        let queue = before.get(&name).map_or_else(|| Queue::new(of(settings)), |before| before.queue.clone());
        queue.resize(of(settings));
        let named = NamedQueue {
            name: Arc::clone(&name),
            queue,
            default_timeout: settings.default_timeout_ms.map(Duration::from),
            wait_timeout: of(settings).wait_timeout,
            shared_slots: settings.max_concurrency.filter(|_| settings.shared),
        };
        (name, named)
    });
    now.collect()
}

/// The name of the queue that a call goes through.
fn name(flight: &Flight) -> Option<&str> {
    let by_default = match flight.tool.kind {
        ToolKind::Mcp | ToolKind::Rest => Some(DEFAULT_QUEUE),
        // Tools of this program wait for nobody unless somebody says so.
        ToolKind::Agent => None,
    };
    flight.tool.rules.queue.as_deref().or(by_default)
}

fn of(settings: &QueueSettings) -> Settings {
    Settings {
        max_concurrency: settings.max_concurrency,
        max_waiting: settings.max_waiting,
        wait_timeout: settings.wait_timeout_ms.map(Duration::from).filter(|limit| !limit.is_zero()),
        ageing: settings.ageing.into(),
    }
}
