//! Registry of in-process tools.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::Value;

use crate::call::{self, Call, CallHandle, CallResult, Invoker, SchemaChecks, ToolRef};
use crate::entry::ToolEntry;
use crate::error::CallError;
use crate::id::{InvalidName, ToolName};
use crate::outcome::Outcome;

mod index;
mod provider;

use index::RegistryIndex;
use provider::OfferingPublisher;

/// Registry of in-process tools. Clones share their tools. It is a [`Provider`](crate::provider::Provider), too: a runtime
/// offers its tools, also those that are registered later.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::registry::{ToolSearch, ToolRegistry};
/// use serde_json::json;
///
/// let registry = ToolRegistry::new();
/// registry.register(ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) }).tag("math"))?;
///
/// let outcome = registry.invoke("double", json!(21)).await;
/// assert_eq!(outcome.data, json!(42));
/// assert_eq!(registry.search(&ToolSearch::new().name("DOUB").any_tags(["math"])).len(), 1);
/// # Ok::<(), pegboard_core::registry::RegisterError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct ToolRegistry(Arc<RwLock<RegistryState>>);

#[derive(Default)]
struct RegistryState {
    by_name: HashMap<ToolName, Arc<ToolEntry>>,
    /// Built lazily at the first listing or search after a change, to keep registration cheap.
    index: OnceLock<RegistryIndex>,
    /// Created when a runtime uses the registry.
    publisher: OnceLock<OfferingPublisher>,
}

/// Reason why a tool was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The name is taken.
    #[error("Tool '{name}' is already registered. Unregister it first or use a different name.")]
    Duplicate {
        /// Name of the tool.
        name: String,
    },
    /// The name is invalid.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
}

impl ToolRegistry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers several tools; all of them, or none.
    ///
    /// ```
    /// # use pegboard_core::{entry::ToolEntry, registry::ToolRegistry};
    /// let clock = ToolEntry::new("now", "The time", |(): ()| async { Ok(7) });
    /// let registry = ToolRegistry::new().with([clock])?;
    /// assert!(registry.contains("now"));
    /// # Ok::<(), pegboard_core::registry::RegisterError>(())
    /// ```
    pub fn with(self, entries: impl IntoIterator<Item = ToolEntry>) -> Result<Self, RegisterError> {
        let mut added: Vec<String> = Vec::new();
        for entry in entries {
            let name = entry.name().to_owned();
            if let Err(error) = self.register(entry) {
                // Clones share their tools: roll back.
                for name in &added {
                    self.unregister(name);
                }
                return Err(error);
            }
            added.push(name);
        }
        Ok(self)
    }

    /// Registers a tool; fails if its name is taken.
    pub fn register(&self, entry: ToolEntry) -> Result<(), RegisterError> {
        let name = ToolName::new(entry.name())?;
        let mut tools = self.write();
        match tools.by_name.entry(name) {
            Entry::Occupied(taken) => return Err(RegisterError::Duplicate { name: taken.key().to_string() }),
            Entry::Vacant(free) => free.insert(Arc::new(entry)),
        };
        tools.changed();
        Ok(())
    }

    /// Removes a tool; returns `false` if there was none. Calls in flight finish.
    pub fn unregister(&self, name: &str) -> bool {
        let mut tools = self.write();
        let is_gone = tools.by_name.remove(name).is_some();
        if is_gone {
            tools.changed();
        }
        is_gone
    }

    /// Returns the tool with exactly this name.
    pub fn get(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.read().by_name.get(name).cloned()
    }

    /// Returns `true` if a tool has exactly this name.
    pub fn contains(&self, name: &str) -> bool {
        self.read().by_name.contains_key(name)
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.read().by_name.len()
    }

    /// Returns `true` if there are no tools.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all tools, sorted by name.
    pub fn list(&self) -> Vec<Arc<ToolEntry>> {
        self.read().index().entries().to_vec()
    }

    /// Returns all names, sorted.
    pub fn list_names(&self) -> Vec<String> {
        self.read().index().entries().iter().map(|entry| entry.name().to_owned()).collect()
    }

    /// Returns the matching tools, sorted by name.
    pub fn search(&self, search: &ToolSearch) -> Vec<Arc<ToolEntry>> {
        self.read().index().search(search)
    }

    /// Calls a tool: validates the arguments, runs it, validates the output.
    ///
    /// There is always an outcome: an unknown name, invalid arguments, an error or a panic of the tool are
    /// failures, and an output that violates its schema is `partial`.
    pub async fn invoke(&self, name: &str, input: impl Into<Value>) -> Outcome {
        self.invoke_with(name, input.into(), SchemaChecks::All).await
    }

    /// Calls a tool without schema validation.
    pub async fn invoke_unchecked(&self, name: &str, input: impl Into<Value>) -> Outcome {
        self.invoke_with(name, input.into(), SchemaChecks::None).await
    }

    async fn invoke_with(&self, name: &str, arguments: Value, checks: SchemaChecks) -> Outcome {
        let call = Call { checks, ..Call::new(name, arguments) };
        Outcome::of(name, self.start(call).await)
    }

    // A panic under the lock cannot leave the map in an inconsistent state.
    fn read(&self) -> RwLockReadGuard<'_, RegistryState> {
        self.0.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, RegistryState> {
        self.0.write()
    }
}

impl RegistryState {
    fn index(&self) -> &RegistryIndex {
        self.index.get_or_init(|| RegistryIndex::of(self.by_name.values().cloned()))
    }

    /// Updates what depends on the tools.
    fn changed(&mut self) {
        self.index.take();
        if let Some(publisher) = self.publisher.get() {
            publisher.publish(self.index().entries().to_vec());
        }
    }

    fn publisher(&self) -> &OfferingPublisher {
        self.publisher.get_or_init(|| OfferingPublisher::new(self.index().entries().to_vec()))
    }
}

impl Invoker for ToolRegistry {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.get(name)
    }

    fn start(&self, call: Call) -> CallHandle {
        // A registry has no toolboxes or servers: only the tool name counts.
        let entry = match &call.tool {
            ToolRef::Name(name) => self.get(name),
            ToolRef::Id(id) => self.get(id.name.as_str()),
        };
        CallHandle::new(async move {
            match entry {
                Some(entry) => call::execute(entry, call).await,
                None => CallResult::rejected(CallError::unknown_tool(call.tool.to_string())),
            }
        })
    }
}

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.list_names().iter().map(|name| format!("'{name}'")).collect();
        write!(f, "ToolRegistry(tools=[{}])", names.join(", "))
    }
}

/// Search criteria for tools; unset ones match everything.
///
/// ```
/// use pegboard_core::registry::ToolSearch;
///
/// let search = ToolSearch::new().name("file").all_tags(["io", "disk"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSearch {
    name: String,
    any_tags: Vec<String>,
    all_tags: Vec<String>,
}

impl ToolSearch {
    /// Creates a search that matches all tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Matches tools with this text in their name, ignoring case.
    #[must_use]
    pub fn name(mut self, part: impl Into<String>) -> Self {
        self.name = part.into();
        self
    }

    /// Matches tools with at least one of these tags; an empty list matches all.
    #[must_use]
    pub fn any_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.any_tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Matches tools with all of these tags.
    #[must_use]
    pub fn all_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.all_tags = tags.into_iter().map(Into::into).collect();
        self
    }
}
