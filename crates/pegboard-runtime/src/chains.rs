//! Chains as tools of a server of their own.

use std::sync::{Arc, Mutex, PoisonError};

use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::id::ToolName;
use pegboard_core::provider::{Local, Offer, Provider};

use crate::catalogue::{Scope, Snapshot};
use crate::runtime::StartError;

mod run;
mod whole;

pub(crate) use run::{NAME as RUN_CHAIN, entry as run_chain};
pub use whole::ChainRun;

/// The chains of one toolbox. What each says of its effects follows what its tools say.
pub(crate) struct PublishedChains {
    provider: Arc<Local>,
    chains: Mutex<Vec<ChainSpec>>,
}

impl Default for PublishedChains {
    fn default() -> Self {
        Self { provider: Arc::new(Local::new([])), chains: Mutex::default() }
    }
}

impl PublishedChains {
    /// Whether both are of the same chains.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.specs() == other.specs()
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider) as _
    }

    /// The chains, in order.
    pub(crate) fn specs(&self) -> Vec<ChainSpec> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more chain, if it can be a tool.
    pub(crate) fn add(&self, chain: ChainSpec) -> Result<(), StartError> {
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        let name = chain.name.clone().unwrap_or_default();
        let cannot = |reason: String| Err(StartError::Chain { chain: format!("'{name}'"), reason });
        if let Err(error) = ToolName::new(&name) {
            return cannot(format!("{error} Give the chain a name"));
        }
        if chains.iter().any(|other| other.name == chain.name) {
            return cannot("another chain of this toolbox has that name".to_owned());
        }
        if chain.steps.is_empty() {
            return cannot("Chain has no steps.".to_owned());
        }
        chains.push(chain);
        self.offer(&chains, |_| None);
        Ok(())
    }

    /// Says of the chains what their tools say now.
    pub(crate) fn follow(&self, snapshot: &Snapshot) {
        let chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |name: &str| {
            let found = snapshot.resolve(name, Scope::All, &|_| false).ok()?;
            Some(Arc::clone(&found.tool.entry))
        };
        let offer = self.provider.offer();
        let is_same = {
            let offer = offer.borrow();
            let offered = || offer.tools.iter().map(|entry| entry.annotations());
            let now: Vec<Annotations> = chains.iter().map(|chain| chain.annotations(&find)).collect();
            offered().eq(now.iter())
        };
        if !is_same {
            self.offer(&chains, find);
        }
    }

    fn offer(&self, chains: &[ChainSpec], find: impl Fn(&str) -> Option<Arc<ToolEntry>>) {
        let tools = chains.iter().map(|chain| Arc::new(chain.clone().into_entry(&find))).collect();
        self.provider.replace(Offer { tools, ..Offer::default() });
    }
}
