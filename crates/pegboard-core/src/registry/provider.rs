//! A registry as a provider: its tools are those of a server, and follow what is registered.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use tokio::sync::watch;

use super::ToolRegistry;
use crate::entry::ToolEntry;
use crate::error::CallError;
use crate::provider::{Provider, ServerOffering, ServerState, ToolKind};

/// Publishes the tools of a registry to runtimes.
pub(super) struct OfferingPublisher {
    offering: watch::Sender<Arc<ServerOffering>>,
    state: watch::Sender<ServerState>,
}

impl OfferingPublisher {
    pub(super) fn new(tools: Vec<Arc<ToolEntry>>) -> Self {
        Self {
            offering: watch::Sender::new(Self::offering_of(tools)),
            state: watch::Sender::new(ServerState::Ready),
        }
    }

    /// Replaces the published tools.
    pub(super) fn publish(&self, tools: Vec<Arc<ToolEntry>>) {
        self.offering.send_replace(Self::offering_of(tools));
    }

    fn offering_of(tools: Vec<Arc<ToolEntry>>) -> Arc<ServerOffering> {
        Arc::new(ServerOffering { tools, ..ServerOffering::default() })
    }
}

/// ```
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::Provider;
/// use pegboard_core::registry::ToolRegistry;
///
/// let registry = ToolRegistry::new();
/// let offering = registry.offering();
/// registry.register(ToolEntry::new("now", "The time", |(): ()| async { Ok(7) }))?;
/// assert_eq!(offering.borrow().tools[0].name(), "now");
/// # Ok::<(), pegboard_core::registry::RegisterError>(())
/// ```
impl Provider for ToolRegistry {
    fn kind(&self) -> ToolKind {
        ToolKind::default()
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.read().publisher().offering.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.read().publisher().state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }

    /// Does nothing: the registry may be in use elsewhere.
    fn shut_down(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}
