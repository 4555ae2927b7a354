//! The named queues, and the choice of queue for a call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use pegboard_core::error::CallError;
use pegboard_core::provider::ToolKind;
use pegboard_core::settings::QueueSettings;

use crate::call::admit::AdmittedCall;
use crate::event::RuntimeEvent;
use crate::queue::{Queue, QueueOptions};

/// Name of the queue of tools that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// A queue with its name and settings.
#[derive(Clone, Debug)]
pub(crate) struct NamedQueue {
    pub(crate) name: Arc<str>,
    pub(crate) queue: Queue,
    /// Execution timeout of its calls.
    pub(crate) default_timeout: Option<Duration>,
    /// Maximum waiting time for a slot.
    pub(crate) wait_timeout: Option<Duration>,
    /// Number of slots shared by all processes, if shared.
    pub(crate) shared_slots: Option<usize>,
}

impl NamedQueue {
    pub(crate) fn depth(&self) -> RuntimeEvent {
        let depth = self.queue.depth();
        RuntimeEvent::QueueDepth {
            queue: Arc::clone(&self.name),
            capacity: depth.capacity,
            in_use: depth.in_use,
            waiting: depth.waiting,
        }
    }
}

/// The queues at one point in time, by name.
pub(crate) type QueueMap = HashMap<Arc<str>, NamedQueue, RandomState>;

/// The current queues.
#[derive(Debug, Default)]
pub(crate) struct Queues(ArcSwap<QueueMap>);

impl Queues {
    pub(crate) fn new(settings: &IndexMap<String, QueueSettings>) -> Self {
        let queues = Self::default();
        queues.configure(settings);
        queues
    }

    /// Returns the current queues.
    pub(crate) fn load(&self) -> Arc<QueueMap> {
        self.0.load_full()
    }

    /// Replaces the queues while in use; a queue that remains keeps its waiters.
    pub(crate) fn configure(&self, settings: &IndexMap<String, QueueSettings>) {
        let before = self.0.load_full();
        self.0.store(Arc::new(build_queues(&before, settings)));
    }

    /// Adds or updates queues, leaving all others unchanged.
    pub(crate) fn add(&self, settings: &IndexMap<String, QueueSettings>) {
        let mut queues = QueueMap::clone(&self.0.load());
        let changed = build_queues(&queues, settings);
        queues.extend(changed);
        self.0.store(Arc::new(queues));
    }

    /// Returns the queue of a call, if it exists.
    pub(crate) fn lookup(&self, admitted: &AdmittedCall) -> Option<NamedQueue> {
        self.find(admitted, queue_name(admitted)?)
    }

    /// Returns the queue of a call, or an error if it is not configured.
    pub(crate) fn required(&self, admitted: &AdmittedCall) -> Result<Option<NamedQueue>, CallError> {
        let Some(name) = queue_name(admitted) else { return Ok(None) };
        match self.find(admitted, name) {
            Some(queue) => Ok(Some(queue)),
            // Without configuration, the default queue is unlimited.
            None if name == DEFAULT_QUEUE => Ok(None),
            None => Err(CallError::QueueTimeout {
                queue: name.to_owned(),
                reason: "is not configured. Add it under queues".to_owned(),
            }),
        }
    }

    /// Looks a queue up as of the resolution of the tool: the tool may belong to a previous configuration
    /// with queues that no longer exist.
    fn find(&self, admitted: &AdmittedCall, name: &str) -> Option<NamedQueue> {
        admitted.queues.get(name).cloned().or_else(|| {
            let current = self.0.load();
            let is_same = Arc::ptr_eq(&current, &admitted.queues);
            if is_same { None } else { current.get(name).cloned() }
        })
    }

    /// Returns the load of every queue, sorted by name.
    pub(crate) fn depths(&self) -> Vec<RuntimeEvent> {
        let queues = self.0.load();
        let mut queues: Vec<_> = queues.values().collect();
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        queues.into_iter().map(NamedQueue::depth).collect()
    }
}

/// Builds the queues of these settings. Existing ones are kept and resized.
fn build_queues(before: &QueueMap, settings: &IndexMap<String, QueueSettings>) -> QueueMap {
    let now = settings.iter().map(|(name, settings)| {
        let name: Arc<str> = name.as_str().into();
        let queue = before
            .get(&name)
            .map_or_else(|| Queue::new(queue_options(settings)), |before| before.queue.clone());
        queue.resize(queue_options(settings));
        let named = NamedQueue {
            name: Arc::clone(&name),
            queue,
            default_timeout: settings.default_timeout_ms.map(Duration::from),
            wait_timeout: queue_options(settings).wait_timeout,
            shared_slots: settings.max_concurrency.filter(|_| settings.shared),
        };
        (name, named)
    });
    now.collect()
}

/// Returns the name of the queue of a call.
fn queue_name(admitted: &AdmittedCall) -> Option<&str> {
    let by_default = match admitted.tool.kind {
        ToolKind::Mcp | ToolKind::Rest => Some(DEFAULT_QUEUE),
        // Tools of this program are not queued unless configured.
        ToolKind::Agent => None,
    };
    admitted.tool.policy.queue.as_deref().or(by_default)
}

fn queue_options(settings: &QueueSettings) -> QueueOptions {
    QueueOptions {
        max_concurrency: settings.max_concurrency,
        max_waiting: settings.max_waiting,
        wait_timeout: settings.wait_timeout_ms.map(Duration::from).filter(|limit| !limit.is_zero()),
        ageing: settings.ageing.into(),
    }
}
