//! A call from request to end, and the seam through which chains, batches and agents make calls.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{self, Instant};

use crate::arguments::Arguments;
use crate::attachment::Attachments;
use crate::client::{Client, NoClient};
use crate::diary::{Diary, NoDiary};
use crate::entry::ToolEntry;
use crate::error::{CallError, Executed};
use crate::handler;
use crate::id::{ServerName, ToolId};
use crate::model::OutputReader;
use crate::output::Output;
use crate::store::OutputHandle;
use crate::trace::TraceParent;
use crate::validation::Violation;

/// Something that finds tools and carries out calls. Whatever calls tools calls them through this.
pub trait Invoker: Send + Sync {
    /// The tool of this name, if there is one.
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>>;

    /// Starts a call. A call that is refused is a call that has ended at once.
    fn start(&self, call: Call) -> Running;

    /// Where calls made through this stand among all others, if somebody keeps count.
    fn place(&self) -> Option<Place> {
        None
    }

    /// Whether the call that makes calls through this has used up its time, which is why it is given up.
    fn is_overdue(&self) -> bool {
        false
    }

    /// What is kept for the session that the calls belong to, if there is one that lasts.
    fn attachments(&self) -> Option<&Attachments> {
        None
    }

    /// The tools that a word stands for: all of a server, or the one of that name. A server that nobody has asked yet
    /// what it has is asked first.
    fn select<'a>(&'a self, word: &'a str) -> BoxFuture<'a, Result<Vec<Selected>, CallError>> {
        let found =
            self.find(word).map(|entry| vec![Selected { tool: word.into(), name: word.into(), entry }]);
        ready(found.ok_or_else(|| CallError::unknown_tool(word))).boxed()
    }

    /// Starts a call of a tool that the calling tool brings along, and that nobody else can call.
    fn start_own(&self, tool: OwnTool, call: Call) -> Running {
        Running::new(carry_out(tool.entry, call))
    }

    /// Where the session of an agent is written down, whose calls are made through this.
    fn diary(&self) -> &dyn Diary {
        &NoDiary
    }
}

/// A tool that was selected.
#[derive(Clone, Debug)]
pub struct Selected {
    /// What it is called by.
    pub tool: ToolRef,
    /// Its name among all tools.
    pub name: Arc<str>,
    /// The tool.
    pub entry: Arc<ToolEntry>,
}

/// A tool that a tool brings along for the calls that it makes itself.
#[derive(Clone, Debug)]
pub struct OwnTool {
    /// The server that it counts as one of.
    pub server: ServerName,
    /// The tool.
    pub entry: Arc<ToolEntry>,
    /// Tells its configuration from every other, so that answers of another never pass for its own.
    pub fingerprint: String,
}

/// A request to carry out a tool. `Debug` leaves the arguments out, so that they do not reach a log.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which tool.
    pub tool: ToolRef,
    /// What the tool is given.
    pub arguments: Arguments,
    /// Who asks, and until when.
    pub context: CallContext,
    /// What is checked on the way.
    pub checks: Checks,
}

impl Call {
    /// A call with every check, from nowhere in particular.
    pub fn new(tool: impl Into<ToolRef>, arguments: impl Into<Arguments>) -> Self {
        Self {
            tool: tool.into(),
            arguments: arguments.into(),
            context: CallContext::default(),
            checks: Checks::default(),
        }
    }
}

/// Which tool is meant: a name as the caller spells it, or the tool's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolRef {
    /// A name, to be looked up.
    Name(String),
    /// The tool itself.
    Id(ToolId),
}

impl fmt::Display for ToolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Id(id) => fmt::Display::fmt(id, f),
        }
    }
}

impl From<&str> for ToolRef {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for ToolRef {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<ToolId> for ToolRef {
    fn from(id: ToolId) -> Self {
        Self::Id(id)
    }
}

/// The circumstances of a call.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CallContext {
    /// When the caller stops waiting. A tool that can finish sooner with less should.
    pub deadline: Option<Instant>,
    /// Where the call comes from.
    pub origin: Origin,
    /// Whoever made the call, if it can be spoken to.
    pub client: Option<Arc<dyn Client>>,
    /// The span that made the call, in a trace that began elsewhere.
    pub trace_parent: Option<TraceParent>,
    /// What the caller wants done differently.
    pub options: CallOptions,
    /// What the tool can call tools through.
    pub tools: Option<Arc<dyn Invoker>>,
    /// The agents that the call is made by, the outermost first. A call by a call has at least those of that one.
    pub agents: Arc<[Arc<str>]>,
    /// Who reads stored outputs for the caller. A call by a call has the one of that, if it has none.
    pub reader: Option<Arc<OutputReader>>,
}

impl CallContext {
    /// Whoever made the call; nobody in particular if it cannot be spoken to.
    pub fn client(&self) -> &dyn Client {
        self.client.as_deref().unwrap_or(&NoClient)
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("deadline", &self.deadline)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The program itself, a chain or a batch.
    #[default]
    Program,
    /// A client of the protocol.
    Client,
    /// An agent, whose model reads what comes back.
    Agent,
}

/// What a caller wants done differently for one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, and off by default")]
pub struct CallOptions {
    /// How long the tool may run, instead of what is configured.
    pub timeout: Option<Duration>,
    /// How many bytes of its answer the caller is handed at most, whatever else is configured.
    pub max_output: Option<usize>,
    /// What is too much of its answer is cut off, and stored nowhere.
    pub cuts_output: bool,
    /// How urgent the call is, instead of what is configured; from −10 to 10.
    pub priority: Option<i8>,
    /// An answer that was given before does not do: the tool is asked, and its answer kept in place of the other.
    pub fresh: bool,
    /// The call takes no slot of a queue.
    pub bypass_concurrency: bool,
    /// The configured time-out does not count; a `timeout` given here still does.
    pub disable_global_timeout: bool,
    /// What the tool is given and answers is written to the trace.
    pub trace: bool,
    /// The arguments name a session and workspace in `context`, `workspaceContext` and `sessionId`, which are for the
    /// runtime and not for the tool.
    pub reads_context: bool,
}

/// Where calls stand among all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The label of the operation that makes them, as `1-2` or `1-2.1-1`.
    pub path: String,
    /// The agents and tools above them, by name.
    pub call_path: String,
    /// The session they are made in.
    pub session: String,
    /// The transaction that makes them.
    pub parent_transaction: String,
    /// The transaction that all began with.
    pub origin_transaction: String,
}

/// Whether a call's arguments and answer are held against the tool's schemas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Both are.
    #[default]
    All,
    /// Neither is.
    None,
}

/// A call that may be carried out: the tool exists and takes these arguments. `Debug` leaves them out.
#[derive(Debug)]
pub struct ValidCall {
    entry: Arc<ToolEntry>,
    arguments: Arguments,
    context: CallContext,
    warnings: Vec<String>,
}

impl ValidCall {
    /// Admits a call of `entry`, or lists everything that is wrong with its arguments.
    pub fn admit(
        entry: Arc<ToolEntry>,
        arguments: Arguments,
        context: CallContext,
        checks: Checks,
    ) -> Result<Self, CallError> {
        if checks == Checks::None {
            return Ok(Self { entry, arguments, context, warnings: Vec::new() });
        }
        if arguments.is_beyond_reading() {
            let text = "$: the arguments have a number or a text that cannot be read, such as 1e999";
            return Err(CallError::InvalidParameters {
                violations: vec![Violation::new(text.to_owned(), text)],
            });
        }
        // No arguments for a tool that takes an object are an empty object.
        let takes_object = entry.input_schema().as_json()["type"] == "object";
        let arguments =
            if takes_object && arguments.value().is_null() { Arguments::default() } else { arguments };
        // Readers differ in which of two they take, so what is checked might not be what is read.
        if let Some(name) = arguments.as_written().and_then(pegboard_json::twin_name) {
            let text = format!("$: the member '{name}' is there twice");
            let violations = vec![Violation::new(text, "$: a member is there twice")];
            return Err(CallError::InvalidParameters { violations });
        }
        let verdict = entry.input_schema().check(arguments.value());
        if !verdict.valid {
            return Err(CallError::InvalidParameters { violations: verdict.errors });
        }
        Ok(Self { entry, arguments, context, warnings: verdict.warnings })
    }

    /// The tool that is called.
    pub fn entry(&self) -> &Arc<ToolEntry> {
        &self.entry
    }

    /// What the tool is given.
    pub fn arguments(&self) -> &Value {
        self.arguments.value()
    }

    /// What the tool is given, as the caller wrote it.
    pub fn raw_arguments(&self) -> &RawJson {
        self.arguments.raw()
    }

    /// The circumstances of the call.
    pub fn context(&self) -> &CallContext {
        &self.context
    }

    /// What could not be checked, and why.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Carries the call out, so that a panic of the tool is an error of the call and of nothing else.
    pub async fn run(&self) -> Result<Output, CallError> {
        handler::call_guarded(self.entry.handler(), self).await
    }
}

/// A call under way. Awaiting it gives its end; dropping it cancels the call.
pub struct Running(Option<BoxFuture<'static, Ended>>);

impl Running {
    /// A call that `work` carries out.
    pub fn new(work: impl Future<Output = Ended> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl Future for Running {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        self.0.as_mut().expect("the work is there until it is dropped").as_mut().poll(context)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let work = self.0.take();
        // A guard of the tool that panics while the call is cancelled must not take the caller down.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            handler::panicked(panic);
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The answer, or why there is none.
    pub result: Result<Output, CallError>,
    /// How long the tool ran; `None` if it did not.
    pub duration: Option<Duration>,
    /// What could not be checked and why.
    pub warnings: Vec<String>,
    /// What became of the call on its way.
    pub journey: Journey,
}

/// What became of a call on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journey {
    /// The label of its operation.
    pub path: Option<String>,
    /// The answer had been given before.
    pub is_cached: bool,
    /// The same call was under way already, and its answer was taken.
    pub is_joined: bool,
    /// How long it waited for a slot; `None` if it did not.
    pub waited: Option<Duration>,
    /// What the caller had called the tool, if that was not quite its name.
    pub corrected_from: Option<String>,
    /// Where the whole answer is kept, if it was too large to hand over.
    pub stored: Option<OutputHandle>,
    /// The session that its arguments named, or that it was given.
    pub session: Option<SessionNote>,
}

/// The session and workspace that a call was made in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionNote {
    /// The session.
    pub id: String,
    /// The workspace.
    pub workspace: String,
    /// Who said that it is this one.
    pub workspace_source: WorkspaceSource,
    /// One line for the caller, when there is something to know.
    pub notice: Option<String>,
}

/// Who said which workspace it is, the first to be asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkspaceSource {
    /// The call, in `workspaceContext`.
    WorkspaceContext,
    /// The call, in `context`.
    Context,
    /// The session, which is bound to it.
    Session,
    /// Nobody.
    Default,
}

impl WorkspaceSource {
    /// Whether the call itself names the workspace.
    pub fn is_explicit(self) -> bool {
        match self {
            Self::WorkspaceContext | Self::Context => true,
            Self::Session | Self::Default => false,
        }
    }
}

impl Ended {
    /// The end of a call whose tool did not run.
    pub fn refused(error: CallError) -> Self {
        Self { result: Err(error), duration: None, warnings: Vec::new(), journey: Journey::default() }
    }
}

/// Carries out one call of an in-process tool: admit it, run it, hold its answer against the output schema.
pub(crate) async fn carry_out(entry: Arc<ToolEntry>, call: Call) -> Ended {
    let valid = match ValidCall::admit(entry, call.arguments, call.context, call.checks) {
        Ok(valid) => valid,
        Err(error) => return Ended::refused(error),
    };
    let started = Instant::now();
    let mut result = match valid.context.deadline {
        None => valid.run().await,
        Some(deadline) => time::timeout_at(deadline, valid.run())
            .await
            .unwrap_or(Err(CallError::DeadlinePassed { executed: Executed::Yes })),
    };
    let duration = match &result {
        // The arguments did not fit the function's parameters: it never ran.
        Err(error) if error.executed() == Executed::No => None,
        _ => Some(started.elapsed()),
    };
    let mut warnings = valid.warnings;
    if let (Ok(output), Checks::All) = (&mut result, call.checks) {
        warnings.extend(output.check(valid.entry.output_schema()));
    }
    Ended { result, duration, warnings, journey: Journey::default() }
}
