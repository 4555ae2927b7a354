//! Tools of one agent session, and the calls it makes to them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use indexmap::IndexMap;
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{
    Call, CallHandle, CallOrigin, CallResult, Invoker, OperationRef, PrivateTool, SchemaChecks, SelectedTool,
    ToolRef, ValidCall,
};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::extensions::Extensions;
use pegboard_core::handler::Handler;
use pegboard_core::memory::MemoryPool;
use pegboard_core::model::{OutputReader, ToolSpec};
use pegboard_core::output::Output;
use pegboard_core::owner::Owner;
use pegboard_core::recorder::AgentRecorder;
use pegboard_json::RawJson;

use crate::builtin;

/// Name of the batch tool.
const BATCH: &str = "agent__batch";
/// Name of the tool that reads stored outputs back.
const TOOL_OUTPUT: &str = "tool_output";
/// Maximum number of names that an error suggests.
const MAX_SUGGESTIONS: usize = 5;

/// Tools of one session. Any other tool cannot be called, under any name.
#[derive(Debug)]
pub(super) struct Toolset {
    items: IndexMap<Arc<str>, ToolsetItem>,
    /// Chain of calling agents, outermost first.
    agents: Arc<[Arc<str>]>,
    timeout: Duration,
    max_output: usize,
    large_outputs: LargeOutputPolicy,
}

/// Policy for outputs that exceed the size limit.
#[derive(Clone, Debug)]
pub(super) enum LargeOutputPolicy {
    /// Store them; a model helps to read them back.
    Store(Arc<OutputReader>),
    /// Truncate them.
    Truncate,
}

#[derive(Debug)]
enum ToolsetItem {
    /// A tool of the catalogue.
    Selected(SelectedTool),
    /// A tool of this session only.
    Private(PrivateTool),
}

impl ToolsetItem {
    fn entry(&self) -> &Arc<ToolEntry> {
        match self {
            Self::Selected(selected) => &selected.entry,
            Self::Private(tool) => &tool.entry,
        }
    }
}

/// Options of a toolset.
pub(super) struct ToolsetOptions {
    /// Tools of this session only.
    pub(super) private_tools: Vec<PrivateTool>,
    /// Tools of the catalogue.
    pub(super) selected: Vec<SelectedTool>,
    /// Chain of calling agents, outermost first.
    pub(super) agents: Arc<[Arc<str>]>,
    /// Timeout of a tool call.
    pub(super) timeout: Duration,
    /// Maximum size of an output in bytes.
    pub(super) max_output: usize,
    /// Policy for larger outputs.
    pub(super) large_outputs: LargeOutputPolicy,
}

impl Toolset {
    pub(super) fn new(
        ToolsetOptions {
            private_tools,
            selected,
            agents,
            timeout,
            max_output,
            large_outputs,
        }: ToolsetOptions,
    ) -> Arc<Self> {
        Arc::new_cyclic(|toolset| {
            let mut items = IndexMap::new();
            for tool in private_tools {
                items.entry(qualified_name(&tool)).or_insert(ToolsetItem::Private(tool));
            }
            for tool in selected {
                let item = if &*tool.name == BATCH {
                    ToolsetItem::Private(scoped_tool(&tool, Weak::clone(toolset)))
                } else {
                    ToolsetItem::Selected(tool.clone())
                };
                items.entry(tool.name).or_insert(item);
            }
            Self { items, agents, timeout, max_output, large_outputs }
        })
    }

    /// Returns the tools as they are offered to the model.
    pub(super) fn tool_specs(&self, outputs: StoredOutputs) -> Vec<ToolSpec> {
        let final_report = format!("{}__{}", builtin::SERVER, builtin::FINAL_REPORT);
        let is_offered = |name: &str| {
            // The final report is written as text, and `tool_output` needs a stored output.
            name != final_report && (name != TOOL_OUTPUT || outputs == StoredOutputs::Present)
        };
        let offered = self.items.iter().filter(|(name, _)| is_offered(name));
        offered.map(|(name, item)| tool_spec(name, item.entry())).collect()
    }

    /// Resolves a name written by a model: a full name, the name of a private tool without its server, or any other
    /// that means one of the tools by the rules for all names.
    pub(super) fn resolve_name(&self, inner: &dyn Invoker, asked: &str) -> Option<&Arc<str>> {
        let asked = asked.trim();
        if let Some((name, _)) = self.items.get_key_value(asked) {
            return Some(name);
        }
        let is_private =
            |item: &ToolsetItem| matches!(item, ToolsetItem::Private(tool) if tool.entry.name() == asked);
        let mut private = self.items.iter().filter(|(_, item)| is_private(item));
        // A tool of the catalogue with the same short name makes it ambiguous.
        match (inner.find_selected(asked), private.next()) {
            (None, Some((name, _))) => Some(name).filter(|_| private.next().is_none()),
            (Some(tool), None) => self.selected_name(&tool),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// Returns the name of a selected tool.
    fn selected_name(&self, tool: &ToolRef) -> Option<&Arc<str>> {
        let is_meant =
            |item: &ToolsetItem| matches!(item, ToolsetItem::Selected(selected) if selected.tool == *tool);
        self.items.iter().find(|(_, item)| is_meant(item)).map(|(name, _)| name)
    }

    /// Returns the error for a name that means no tool, with the full names of those that end like it.
    fn unknown_tool(&self, asked: &str) -> CallError {
        let asked: String = asked.chars().take(200).collect();
        if builtin::is_task_status(&asked) {
            let reason = format!("'{asked}' is not enabled for this agent: add task_status to its tools");
            return CallError::NotPermitted { reason };
        }
        let ending = format!("__{asked}");
        let nearest = self.items.keys().filter(|name| name.ends_with(&ending) && !asked.is_empty());
        let nearest = nearest.take(MAX_SUGGESTIONS).map(ToString::to_string).collect();
        CallError::NotFound(NotFound::Tool { name: asked, nearest })
    }

    /// Starts a call of one of the tools.
    pub(super) fn start(
        &self,
        inner: &dyn Invoker,
        asked: &str,
        arguments: CallArguments,
        max_output: usize,
    ) -> CallHandle {
        let Some(item) = self.resolve_name(inner, asked).and_then(|name| self.items.get(name)) else {
            return CallHandle::new(ready(CallResult::rejected(self.unknown_tool(asked))));
        };
        let tool = match item {
            ToolsetItem::Selected(selected) => selected.tool.clone(),
            ToolsetItem::Private(tool) => ToolRef::Name(tool.entry.name().to_owned()),
        };
        let mut call = Call::new(tool, arguments);
        call.context.origin = CallOrigin::Agent;
        call.context.agents = Arc::clone(&self.agents);
        call.context.options.max_output = Some(max_output.min(self.max_output));
        match &self.large_outputs {
            LargeOutputPolicy::Store(reader) => call.context.reader = Some(Arc::clone(reader)),
            LargeOutputPolicy::Truncate => call.context.options.cuts_output = true,
        }
        match item {
            ToolsetItem::Private(tool) => inner.start_private(tool.clone(), call),
            ToolsetItem::Selected(selected) => {
                // A tool that calls tools itself takes as long as they do.
                if selected.entry.is_managed() {
                    call.context.options.timeout = Some(self.timeout);
                }
                inner.start(call)
            }
        }
    }
}

/// State of the session's stored outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StoredOutputs {
    /// No output was stored.
    #[default]
    None,
    /// At least one output was stored and can be read back.
    Present,
}

fn qualified_name(tool: &PrivateTool) -> Arc<str> {
    format!("{}__{}", tool.server, tool.entry.name()).into()
}

fn tool_spec(name: &str, entry: &ToolEntry) -> ToolSpec {
    let mut description = entry.description().to_owned();
    if let Some(instructions) = entry.instructions() {
        description.push_str("\n\n");
        description.push_str(instructions);
    }
    let definition = entry.definition();
    let input_schema =
        definition.get("inputSchema").unwrap_or_else(|| RawJson::of(entry.input_schema().as_json()));
    ToolSpec { name: name.to_owned(), description, input_schema }
}

/// Restricts a tool that makes calls to the tools of a toolset.
fn scoped_tool(tool: &SelectedTool, toolset: Weak<Toolset>) -> PrivateTool {
    let inner = Arc::clone(&tool.entry);
    let entry = ToolEntry::from_handler(
        inner.name().to_owned(),
        inner.description(),
        Arc::new(ScopedTool { inner: Arc::clone(&inner), toolset }),
    );
    builtin::private_tool(builtin::SERVER, entry.with_input_schema(inner.input_schema().clone()))
}

struct ScopedTool {
    inner: Arc<ToolEntry>,
    toolset: Weak<Toolset>,
}

impl Handler for ScopedTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let mut context = call.context().clone();
            let toolset = self.toolset.upgrade().zip(context.tools.take());
            context.tools = toolset
                .map(|(toolset, inner)| Arc::new(ScopedInvoker { toolset, inner }) as Arc<dyn Invoker>);
            let arguments = CallArguments::from(call.raw_arguments().clone());
            let limited = ValidCall::admit(Arc::clone(&self.inner), arguments, context, SchemaChecks::None)?;
            limited.run().await
        }
        .boxed()
    }
}

/// Invoker that is limited to the tools of a toolset.
struct ScopedInvoker {
    toolset: Arc<Toolset>,
    inner: Arc<dyn Invoker>,
}

impl ScopedInvoker {
    fn resolve_name(&self, tool: &ToolRef) -> Option<Arc<str>> {
        match tool {
            ToolRef::Name(name) => self.toolset.resolve_name(&*self.inner, name).cloned(),
            ToolRef::Id(_) => self.toolset.selected_name(tool).cloned(),
        }
    }
}

impl Invoker for ScopedInvoker {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.toolset.items.get(name).map(|item| Arc::clone(item.entry()))
    }

    fn start(&self, call: Call) -> CallHandle {
        // An unknown tool keeps the requested name, so the error can name it.
        let name = self.resolve_name(&call.tool).unwrap_or_else(|| call.tool.to_string().into());
        self.toolset.start(&*self.inner, &name, call.arguments, self.toolset.max_output)
    }

    fn start_private(&self, tool: PrivateTool, call: Call) -> CallHandle {
        self.inner.start_private(tool, call)
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'_, Result<(), CallError>> {
        self.inner.run_apart(work)
    }

    fn operation(&self) -> Option<OperationRef> {
        self.inner.operation()
    }

    fn is_overdue(&self) -> bool {
        self.inner.is_overdue()
    }

    fn extensions(&self) -> Option<&Extensions> {
        self.inner.extensions()
    }

    fn memory(&self) -> Option<MemoryPool> {
        self.inner.memory()
    }

    fn owner(&self) -> Option<&Owner> {
        self.inner.owner()
    }

    fn recorder(&self) -> &dyn AgentRecorder {
        self.inner.recorder()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_what_it_means_to_every_caller() {
        let selected = |name: &str| SelectedTool {
            tool: name.into(),
            name: name.into(),
            entry: Arc::new(ToolEntry::new("tool", "", |(): ()| async { Ok(()) })),
        };
        let entry = ToolEntry::new("final_report", "", |(): ()| async { Ok(()) });
        let toolset = Toolset::new(ToolsetOptions {
            private_tools: vec![builtin::private_tool(builtin::SERVER, entry)],
            selected: ["evil__github_create", "evil__list"].map(selected).to_vec(),
            agents: Arc::default(),
            timeout: Duration::from_secs(1),
            max_output: 1,
            large_outputs: LargeOutputPolicy::Truncate,
        });
        let resolve = |asked| toolset.resolve_name(&Names, asked).map(|name| &**name);
        for (asked, expected) in [
            ("evil__list", Some("evil__list")),
            ("list", Some("evil__list")),
            ("final_report", Some("agent__final_report")),
            // It belongs to the server `github`, which the agent may or may not use.
            ("github_create", None),
            // A tool of the catalogue that was not selected.
            ("docs_find", None),
            ("", None),
        ] {
            assert_eq!(resolve(asked), expected, "{asked}");
        }
        let refused = |asked| {
            let call = toolset.start(&Names, asked, CallArguments::default(), 1);
            call.now_or_never().unwrap().result.unwrap_err()
        };
        assert_eq!(refused("agent__task_status").kind(), pegboard_core::error::ErrorKind::NotPermitted);
        let CallError::NotFound(missing) = refused("github_create") else { panic!("it is unknown") };
        assert_eq!(missing.nearest(), ["evil__github_create"]);
    }

    /// A catalogue that knows two short names.
    struct Names;

    impl Invoker for Names {
        fn find(&self, _name: &str) -> Option<Arc<ToolEntry>> {
            None
        }

        fn find_selected(&self, name: &str) -> Option<ToolRef> {
            match name {
                "list" => Some("evil__list".into()),
                "docs_find" => Some("docs__find".into()),
                _ => None,
            }
        }

        fn start(&self, call: Call) -> CallHandle {
            CallHandle::new(ready(CallResult::rejected(CallError::unknown_tool(call.tool.to_string()))))
        }
    }
}
