//! The tools of one session of an agent, and the calls that it makes of them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use indexmap::IndexMap;
use pegboard_core::arguments::Arguments;
use pegboard_core::attachment::Attachments;
use pegboard_core::call::{
    Call, Checks, Ended, Invoker, Origin, OwnTool, Place, Running, Selected, ToolRef, ValidCall,
};
use pegboard_core::diary::Diary;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::ServerName;
use pegboard_core::model::{OutputReader, ToolOffer};
use pegboard_core::output::Output;
use pegboard_json::RawJson;

use crate::builtin;

/// The tool that makes several calls, as it is called by.
const BATCH: &str = "agent__batch";
/// The tool that reads answers back that were stored.
const TOOL_OUTPUT: &str = "tool_output";

/// The tools of one session. What is not among them cannot be called, by whatever name.
#[derive(Debug)]
pub(super) struct Belt {
    items: IndexMap<Arc<str>, Item>,
    /// The agents that the calls are made by, the outermost first.
    agents: Arc<[Arc<str>]>,
    timeout: Duration,
    max_output: usize,
    large: Large,
}

/// What becomes of answers that are too large.
#[derive(Clone, Debug)]
pub(super) enum Large {
    /// They are stored, and read back with the help of a model.
    Stored(Arc<OutputReader>),
    /// They are cut.
    Cut,
}

#[derive(Debug)]
enum Item {
    /// A tool that is there for others, too.
    Selected(Selected),
    /// A tool of this session alone.
    Own(OwnTool),
}

impl Item {
    fn entry(&self) -> &Arc<ToolEntry> {
        match self {
            Self::Selected(selected) => &selected.entry,
            Self::Own(tool) => &tool.entry,
        }
    }
}

/// What a belt is made of.
pub(super) struct Parts {
    /// Tools of the session alone.
    pub(super) own: Vec<OwnTool>,
    /// Tools that were selected.
    pub(super) selected: Vec<Selected>,
    /// The agents that the calls are made by, the outermost first.
    pub(super) agents: Arc<[Arc<str>]>,
    /// How long a tool may take.
    pub(super) timeout: Duration,
    /// How many bytes of an answer are handed over.
    pub(super) max_output: usize,
    /// What becomes of larger ones.
    pub(super) large: Large,
}

impl Belt {
    pub(super) fn new(Parts { own, selected, agents, timeout, max_output, large }: Parts) -> Arc<Self> {
        Arc::new_cyclic(|belt| {
            let mut items = IndexMap::new();
            for tool in own {
                items.entry(own_name(&tool)).or_insert(Item::Own(tool));
            }
            for tool in selected {
                let item = if &*tool.name == BATCH {
                    Item::Own(within(&tool, Weak::clone(belt)))
                } else {
                    Item::Selected(tool.clone())
                };
                items.entry(tool.name).or_insert(item);
            }
            Self { items, agents, timeout, max_output, large }
        })
    }

    /// The tools as they are offered to a model.
    pub(super) fn offers(&self, outputs: Outputs) -> Vec<ToolOffer> {
        let final_report = format!("{}__{}", builtin::SERVER, builtin::FINAL_REPORT);
        let is_offered = |name: &str| {
            // The final report is written as text, and there is nothing to read back before something was stored.
            name != final_report && (name != TOOL_OUTPUT || outputs == Outputs::Stored)
        };
        let offered = self.items.iter().filter(|(name, _)| is_offered(name));
        offered.map(|(name, item)| offer(name, item.entry())).collect()
    }

    /// The name of the tool that a model means: the name itself, or what is left of it without its server.
    pub(super) fn name_of(&self, asked: &str) -> Option<&Arc<str>> {
        let asked = asked.trim();
        if let Some((name, _)) = self.items.get_key_value(asked) {
            return Some(name);
        }
        let ending = format!("__{asked}");
        let mut namesakes = self.items.keys().filter(|name| name.ends_with(&ending));
        namesakes.next().filter(|_| !asked.is_empty() && namesakes.next().is_none())
    }

    /// Starts a call of one of the tools through whoever carries calls out.
    pub(super) fn start(
        &self,
        under: &dyn Invoker,
        asked: &str,
        arguments: Arguments,
        max_output: usize,
    ) -> Running {
        let Some(item) = self.name_of(asked).and_then(|name| self.items.get(name)) else {
            let asked: String = asked.chars().take(200).collect();
            return Running::new(ready(Ended::refused(CallError::unknown_tool(asked))));
        };
        let tool = match item {
            Item::Selected(selected) => selected.tool.clone(),
            Item::Own(tool) => ToolRef::Name(tool.entry.name().to_owned()),
        };
        let mut call = Call::new(tool, arguments);
        call.context.origin = Origin::Agent;
        call.context.agents = Arc::clone(&self.agents);
        call.context.options.max_output = Some(max_output.min(self.max_output));
        match &self.large {
            Large::Stored(reader) => call.context.reader = Some(Arc::clone(reader)),
            Large::Cut => call.context.options.cuts_output = true,
        }
        match item {
            Item::Own(tool) => under.start_own(tool.clone(), call),
            Item::Selected(selected) => {
                // What calls tools itself takes as long as they do.
                if selected.entry.is_managed() {
                    call.context.options.timeout = Some(self.timeout);
                }
                under.start(call)
            }
        }
    }
}

/// Whether answers of this session were stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Outputs {
    /// None were.
    #[default]
    None,
    /// Some were, so that they can be read back.
    Stored,
}

fn own_name(tool: &OwnTool) -> Arc<str> {
    format!("{}__{}", tool.server, tool.entry.name()).into()
}

fn offer(name: &str, entry: &ToolEntry) -> ToolOffer {
    let mut description = entry.description().to_owned();
    if let Some(instructions) = entry.instructions() {
        description.push_str("\n\n");
        description.push_str(instructions);
    }
    let definition = entry.definition();
    let input_schema =
        definition.get("inputSchema").unwrap_or_else(|| RawJson::of(entry.input_schema().as_json()));
    ToolOffer { name: name.to_owned(), description, input_schema }
}

/// A tool that makes calls, as one that makes none but of the tools of a belt.
fn within(tool: &Selected, belt: Weak<Belt>) -> OwnTool {
    let inner = Arc::clone(&tool.entry);
    let entry = ToolEntry::from_handler(
        inner.name().to_owned(),
        inner.description(),
        Arc::new(Within { inner: Arc::clone(&inner), belt }),
    );
    let entry = entry.with_input_schema(inner.input_schema().clone()).unmanaged().judging_itself();
    let server = ServerName::new(builtin::SERVER).expect("it is neither empty nor long");
    OwnTool { server, entry: Arc::new(entry), fingerprint: String::new() }
}

struct Within {
    inner: Arc<ToolEntry>,
    belt: Weak<Belt>,
}

impl Handler for Within {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let mut context = call.context().clone();
            let belt = self.belt.upgrade().zip(context.tools.take());
            context.tools = belt.map(|(belt, under)| Arc::new(Limited { belt, under }) as Arc<dyn Invoker>);
            let arguments = Arguments::from(call.raw_arguments().clone());
            let limited = ValidCall::admit(Arc::clone(&self.inner), arguments, context, Checks::None)?;
            limited.run().await
        }
        .boxed()
    }
}

/// Carries out calls of the tools of a belt, and of no others.
struct Limited {
    belt: Arc<Belt>,
    under: Arc<dyn Invoker>,
}

impl Limited {
    fn name_of(&self, tool: &ToolRef) -> Option<Arc<str>> {
        match tool {
            ToolRef::Name(name) => self.belt.name_of(name).cloned(),
            ToolRef::Id(_) => {
                let is_meant =
                    |item: &Item| matches!(item, Item::Selected(selected) if selected.tool == *tool);
                self.belt.items.iter().find(|(_, item)| is_meant(item)).map(|(name, _)| Arc::clone(name))
            }
        }
    }
}

impl Invoker for Limited {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.belt.items.get(name).map(|item| Arc::clone(item.entry()))
    }

    fn start(&self, call: Call) -> Running {
        // One that is not there is told by the name that was asked for.
        let name = self.name_of(&call.tool).unwrap_or_else(|| call.tool.to_string().into());
        self.belt.start(&*self.under, &name, call.arguments, self.belt.max_output)
    }

    fn start_own(&self, tool: OwnTool, call: Call) -> Running {
        self.under.start_own(tool, call)
    }

    fn place(&self) -> Option<Place> {
        self.under.place()
    }

    fn is_overdue(&self) -> bool {
        self.under.is_overdue()
    }

    fn attachments(&self) -> Option<&Attachments> {
        self.under.attachments()
    }

    fn diary(&self) -> &dyn Diary {
        self.under.diary()
    }
}
