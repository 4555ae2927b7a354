//! The tools of one program, by name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;

use crate::call::{self, Call, Checks, Ended, Invoker, Running, ToolRef};
use crate::entry::ToolEntry;
use crate::error::CallError;
use crate::id::{InvalidName, ToolName};
use crate::outcome::Outcome;

mod index;

use index::Index;

/// The tools of one program. Clones share their tools.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::registry::{Search, ToolRegistry};
/// use serde_json::json;
///
/// let registry = ToolRegistry::new();
/// registry.register(ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) }).tag("math"))?;
///
/// let outcome = registry.invoke("double", json!(21)).await;
/// assert_eq!(outcome.data, json!(42));
/// assert_eq!(registry.search(&Search::new().name("DOUB").any_tags(["math"])).len(), 1);
/// # Ok::<(), pegboard_core::registry::RegisterError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct ToolRegistry(Arc<RwLock<Tools>>);

#[derive(Default)]
struct Tools {
    by_name: HashMap<ToolName, Arc<ToolEntry>>,
    /// Built at the first list or search after a change, so that registering stays cheap.
    index: OnceLock<Index>,
}

/// Why a tool was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The name is taken.
    #[error("Tool '{name}' is already registered. Unregister it first or use a different name.")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The name cannot be one.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
}

impl ToolRegistry {
    /// A registry without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// The registry with these tools as well.
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
                // Clones share their tools: all of these, or none.
                for name in &added {
                    self.unregister(name);
                }
                return Err(error);
            }
            added.push(name);
        }
        Ok(self)
    }

    /// Adds a tool, unless its name is taken.
    pub fn register(&self, entry: ToolEntry) -> Result<(), RegisterError> {
        let name = ToolName::new(entry.name())?;
        let mut tools = self.write();
        match tools.by_name.entry(name) {
            Entry::Occupied(taken) => return Err(RegisterError::Duplicate { name: taken.key().to_string() }),
            Entry::Vacant(free) => free.insert(Arc::new(entry)),
        };
        tools.index.take();
        Ok(())
    }

    /// Takes a tool away; `false` if there was none. Calls of it that are under way finish.
    pub fn unregister(&self, name: &str) -> bool {
        let mut tools = self.write();
        let is_gone = tools.by_name.remove(name).is_some();
        if is_gone {
            tools.index.take();
        }
        is_gone
    }

    /// The tool of exactly this name.
    pub fn get(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.read().by_name.get(name).cloned()
    }

    /// Whether a tool has exactly this name.
    pub fn contains(&self, name: &str) -> bool {
        self.read().by_name.contains_key(name)
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.read().by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All tools, sorted by name.
    pub fn list(&self) -> Vec<Arc<ToolEntry>> {
        self.read().index().entries().to_vec()
    }

    /// The names of all tools, sorted.
    pub fn list_names(&self) -> Vec<String> {
        self.read().index().entries().iter().map(|entry| entry.name().to_owned()).collect()
    }

    /// The tools that a search asks for, sorted by name.
    pub fn search(&self, search: &Search) -> Vec<Arc<ToolEntry>> {
        self.read().index().search(search)
    }

    /// Calls a tool: its arguments are checked, then it runs, then its answer is checked.
    ///
    /// Whatever happens, there is an outcome: an unknown name, wrong arguments, an error or a panic of the
    /// tool are failures, and an answer that breaks the output schema is `partial`.
    pub async fn invoke(&self, name: &str, input: impl Into<Value>) -> Outcome {
        self.invoke_with(name, input.into(), Checks::All).await
    }

    /// Calls a tool without looking at its schemas.
    pub async fn invoke_unchecked(&self, name: &str, input: impl Into<Value>) -> Outcome {
        self.invoke_with(name, input.into(), Checks::None).await
    }

    async fn invoke_with(&self, name: &str, arguments: Value, checks: Checks) -> Outcome {
        let call = Call { checks, ..Call::new(name, arguments) };
        Outcome::of(name, self.start(call).await)
    }

    // A panic while the lock was held cannot leave the map in a state that is not whole.
    fn read(&self) -> RwLockReadGuard<'_, Tools> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tools> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tools {
    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(self.by_name.values().cloned()))
    }
}

impl Invoker for ToolRegistry {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.get(name)
    }

    fn start(&self, call: Call) -> Running {
        // A registry is one shelf: whatever toolbox and server somebody means, the name is what counts.
        let entry = match &call.tool {
            ToolRef::Name(name) => self.get(name),
            ToolRef::Id(id) => self.get(id.name.as_str()),
        };
        Running::new(async move {
            match entry {
                Some(entry) => call::carry_out(entry, call).await,
                None => Ended::refused(CallError::unknown_tool(call.tool.to_string())),
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

/// What to look for among the tools. What is not asked for does not count.
///
/// ```
/// use pegboard_core::registry::Search;
///
/// let search = Search::new().name("file").all_tags(["io", "disk"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    name: String,
    any_tags: Vec<String>,
    all_tags: Vec<String>,
}

impl Search {
    /// A search that finds everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only tools whose name contains this text, in upper or lower case.
    #[must_use]
    pub fn name(mut self, part: impl Into<String>) -> Self {
        self.name = part.into();
        self
    }

    /// Only tools that have one of these tags; an empty list does not count.
    #[must_use]
    pub fn any_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.any_tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Only tools that have all of these tags.
    #[must_use]
    pub fn all_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.all_tags = tags.into_iter().map(Into::into).collect();
        self
    }
}
