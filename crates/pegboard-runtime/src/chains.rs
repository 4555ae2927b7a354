//! Configured chains, published as tools of the `chain` server.

use std::sync::Arc;

use parking_lot::Mutex;
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::id::ToolName;
use pegboard_core::provider::{LocalProvider, Provider, ServerOffering};

use crate::catalogue::{Snapshot, ToolboxScope};
use crate::runtime::StartError;

mod chain_call;
mod run;

pub use chain_call::ChainRun;
pub(crate) use run::{NAME as RUN_CHAIN, entry as run_chain};

/// The chains of one toolbox. Their annotations derive from those of their tools.
pub(crate) struct PublishedChains {
    provider: Arc<LocalProvider>,
    chains: Mutex<Vec<ChainSpec>>,
}

impl Default for PublishedChains {
    fn default() -> Self {
        Self { provider: Arc::new(LocalProvider::new([])), chains: Mutex::default() }
    }
}

impl PublishedChains {
    /// Returns `true` if both publish the same chains.
    pub(crate) fn has_same_chains(&self, other: &Self) -> bool {
        self.specs() == other.specs()
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider) as _
    }

    /// Returns the chains, in order.
    pub(crate) fn specs(&self) -> Vec<ChainSpec> {
        self.chains.lock().clone()
    }

    /// Adds a chain, if it can be published as a tool.
    pub(crate) fn add(&self, chain: ChainSpec) -> Result<(), StartError> {
        let mut chains = self.chains.lock();
        let name = chain.name.clone().unwrap_or_default();
        let invalid = |reason: String| Err(StartError::Chain { chain: format!("'{name}'"), reason });
        if let Err(error) = ToolName::new(&name) {
            return invalid(format!("{error} Give the chain a name"));
        }
        if chains.iter().any(|other| other.name == chain.name) {
            return invalid("another chain in this toolbox has the same name".to_owned());
        }
        if chain.steps.is_empty() {
            return invalid("Chain has no steps.".to_owned());
        }
        chains.push(chain);
        self.publish(&chains, |_| None);
        Ok(())
    }

    /// Recomputes the annotations of the chains from the current catalogue.
    pub(crate) fn update_annotations(&self, snapshot: &Snapshot) {
        let chains = self.chains.lock();
        let find = |name: &str| {
            let found = snapshot.resolve(name, ToolboxScope::All).ok()?;
            Some(Arc::clone(&found.tool.entry))
        };
        let offer = self.provider.offering();
        let is_same = {
            let offer = offer.borrow();
            let offered = || offer.tools.iter().map(|entry| entry.annotations());
            let now: Vec<ToolAnnotations> = chains.iter().map(|chain| chain.annotations(&find)).collect();
            offered().eq(now.iter())
        };
        if !is_same {
            self.publish(&chains, find);
        }
    }

    fn publish(&self, chains: &[ChainSpec], find: impl Fn(&str) -> Option<Arc<ToolEntry>>) {
        let tools = chains.iter().map(|chain| Arc::new(chain.clone().into_entry(&find))).collect();
        self.provider.replace(ServerOffering { tools, ..ServerOffering::default() });
    }
}
