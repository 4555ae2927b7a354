//! Tool calls, from request to result, and the [`Invoker`] trait through which chains, batches and agents
//! make them.

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

use crate::arguments::CallArguments;
use crate::client::{Client, NoClient};
use crate::entry::ToolEntry;
use crate::error::{CallError, Executed};
use crate::extensions::Extensions;
use crate::handler;
use crate::id::{ServerName, ToolId};
use crate::memory::MemoryPool;
use crate::model::OutputReader;
use crate::output::Output;
use crate::owner::Owner;
use crate::recorder::{AgentRecorder, NoopRecorder};
use crate::store::OutputHandle;
use crate::trace::TraceParent;
use crate::validation::Violation;

/// Finds tools and runs calls. All callers of tools go through this trait.
pub trait Invoker: Send + Sync {
    /// Returns the tool with this name, if there is one.
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>>;

    /// Returns the tool that a call of this name would use. If the name points to a server that has not listed
    /// its tools yet, the server is opened first.
    fn locate<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<ToolEntry>, CallError>> {
        ready(self.find(name).ok_or_else(|| CallError::unknown_tool(name))).boxed()
    }

    /// Starts a call. A rejected call returns a handle that resolves at once.
    fn start(&self, call: Call) -> CallHandle;

    /// Returns the operation that calls made through this invoker belong to, if operations are tracked.
    fn operation(&self) -> Option<OperationRef> {
        None
    }

    /// Returns `true` if the parent call was cancelled because it exceeded its time limit.
    fn is_overdue(&self) -> bool {
        false
    }

    /// Records a time for which the parent call waited for its server to start.
    fn record_start_wait(&self, _waited: Duration) {}

    /// Returns the extensions of the session that the calls belong to, if there is a persistent one.
    fn extensions(&self) -> Option<&Extensions> {
        None
    }

    /// Returns the memory for what chains and batches collect from calls made through this invoker, if it has a limit
    /// that others share.
    fn memory(&self) -> Option<MemoryPool> {
        None
    }

    /// Returns the principal that the calls are made for, if it is known.
    fn owner(&self) -> Option<&Owner> {
        None
    }

    /// Resolves a selector to tools: all tools of a server, or the tool with that name. A server that has not
    /// been listed yet is queried first.
    fn select<'a>(&'a self, selector: &'a str) -> BoxFuture<'a, Result<Vec<SelectedTool>, CallError>> {
        let found = self
            .find(selector)
            .map(|entry| vec![SelectedTool { tool: selector.into(), name: selector.into(), entry }]);
        ready(found.ok_or_else(|| CallError::unknown_tool(selector))).boxed()
    }

    /// Returns the tool of a selection that a name means, by the rules for all names: one with the prefix of a
    /// server means no tool of another server, in any state of either. Nothing is opened.
    fn find_selected(&self, name: &str) -> Option<ToolRef> {
        self.find(name).map(|_| name.into())
    }

    /// Starts a call of a private tool, which only the calling tool can use.
    fn start_private(&self, tool: PrivateTool, call: Call) -> CallHandle {
        CallHandle::new(execute(tool.entry, call))
    }

    /// Runs work that takes long on a thread of its own, if there are threads for it.
    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'_, Result<(), CallError>> {
        work();
        ready(Ok(())).boxed()
    }

    /// Returns the recorder for the agent session that makes calls through this invoker.
    fn recorder(&self) -> &dyn AgentRecorder {
        &NoopRecorder
    }
}

/// A tool matched by [`Invoker::select`].
#[derive(Clone, Debug)]
pub struct SelectedTool {
    /// Reference to call it by.
    pub tool: ToolRef,
    /// Qualified name of the tool.
    pub name: Arc<str>,
    /// Entry of the tool.
    pub entry: Arc<ToolEntry>,
}

/// A tool that a tool registers for its own calls.
#[derive(Clone, Debug)]
pub struct PrivateTool {
    /// Server that it is attributed to.
    pub server: ServerName,
    /// Entry of the tool.
    pub entry: Arc<ToolEntry>,
    /// Hash of its configuration; keeps cached results of different configurations apart.
    pub fingerprint: String,
}

/// Request to call a tool. `Debug` omits the arguments to keep them out of logs.
#[derive(Clone, Debug)]
pub struct Call {
    /// Tool to call.
    pub tool: ToolRef,
    /// Arguments of the tool.
    pub arguments: CallArguments,
    /// Caller, deadline and options.
    pub context: CallContext,
    /// Schema validation to perform.
    pub checks: SchemaChecks,
}

impl Call {
    /// Creates a call with all checks and a default context.
    pub fn new(tool: impl Into<ToolRef>, arguments: impl Into<CallArguments>) -> Self {
        Self {
            tool: tool.into(),
            arguments: arguments.into(),
            context: CallContext::default(),
            checks: SchemaChecks::default(),
        }
    }
}

/// Reference to a tool: a name to be looked up, or an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolRef {
    /// Name to be looked up.
    Name(String),
    /// Id of the tool.
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

/// Context of a call.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CallContext {
    /// Time at which the caller stops waiting. A tool that can return a partial result earlier should.
    pub deadline: Option<Instant>,
    /// Source of the call.
    pub origin: CallOrigin,
    /// Client that made the call, if it supports notifications and input requests.
    pub client: Option<Arc<dyn Client>>,
    /// Parent span of a trace that started elsewhere.
    pub trace_parent: Option<TraceParent>,
    /// Options set by the caller.
    pub options: CallOptions,
    /// Invoker for nested calls of the tool.
    pub tools: Option<Arc<dyn Invoker>>,
    /// Names of the agents that the call is nested in, outermost first. A nested call inherits those of its
    /// parent.
    pub agents: Arc<[Arc<str>]>,
    /// Reader of stored outputs for the caller. A nested call inherits it unless it has its own.
    pub reader: Option<Arc<OutputReader>>,
}

impl CallContext {
    /// Returns the client that made the call, or [`NoClient`].
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

/// Source of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CallOrigin {
    /// This program, a chain or a batch.
    #[default]
    Program,
    /// An MCP client.
    Client,
    /// An agent; its model reads the result.
    Agent,
}

/// Options that a caller sets for one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, all off by default")]
pub struct CallOptions {
    /// Timeout that overrides the configured one.
    pub timeout: Option<Duration>,
    /// Maximum size of the output in bytes; overrides the configured limit.
    pub max_output: Option<usize>,
    /// Truncates an output beyond the limit instead of storing it.
    pub cuts_output: bool,
    /// Priority that overrides the configured one, from −10 to 10.
    pub priority: Option<i8>,
    /// Bypasses cached results; the new result replaces the cached one.
    pub fresh: bool,
    /// Runs without occupying a queue slot.
    pub bypass_concurrency: bool,
    /// Disables the configured timeout; a `timeout` set here still applies.
    pub disable_global_timeout: bool,
    /// Writes arguments and output to the trace.
    pub trace: bool,
    /// Reads session and workspace from the arguments `context`, `workspaceContext` and `sessionId`, which
    /// are meant for the runtime and not for the tool.
    pub reads_context: bool,
}

/// Position of calls in the tree of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRef {
    /// Path of the parent operation, such as `1-2` or `1-2.1-1`.
    pub path: String,
    /// Names of the enclosing agents and tools.
    pub call_path: String,
    /// Session id.
    pub session: String,
    /// Transaction that makes the calls.
    pub parent_transaction: String,
    /// Root transaction.
    pub origin_transaction: String,
}

/// Validation of arguments and output against the schemas of the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaChecks {
    /// Validate both.
    #[default]
    All,
    /// Validate neither.
    None,
}

/// A call that may run: the tool exists and accepts the arguments. `Debug` omits the arguments.
#[derive(Debug)]
pub struct ValidCall {
    entry: Arc<ToolEntry>,
    arguments: CallArguments,
    context: CallContext,
    warnings: Vec<String>,
}

impl ValidCall {
    /// Validates a call of `entry`; fails with all violations in its arguments.
    pub fn admit(
        entry: Arc<ToolEntry>,
        arguments: CallArguments,
        context: CallContext,
        checks: SchemaChecks,
    ) -> Result<Self, CallError> {
        if checks == SchemaChecks::None {
            return Ok(Self { entry, arguments, context, warnings: Vec::new() });
        }
        if arguments.is_unrepresentable() {
            let text =
                "$: the arguments contain a number or string that cannot be represented, such as 1e999";
            return Err(CallError::InvalidParameters {
                violations: vec![Violation::new(text.to_owned(), text)],
            });
        }
        // Missing arguments are an empty object for a tool that takes one.
        let takes_object = entry.input_schema().as_json()["type"] == "object";
        let arguments =
            if takes_object && arguments.value().is_null() { CallArguments::default() } else { arguments };
        // Parsers differ in which duplicate they use, so the validated value might not be the one that is
        // used.
        if let Some(name) = arguments.as_written().and_then(pegboard_json::duplicate_key) {
            let text = format!("$: duplicate key '{name}'");
            let violations = vec![Violation::new(text, "$: duplicate key")];
            return Err(CallError::InvalidParameters { violations });
        }
        let verdict = entry.input_schema().check(arguments.value());
        if !verdict.valid {
            return Err(CallError::InvalidParameters { violations: verdict.errors });
        }
        Ok(Self { entry, arguments, context, warnings: verdict.warnings })
    }

    /// Returns the tool.
    pub fn entry(&self) -> &Arc<ToolEntry> {
        &self.entry
    }

    /// Returns the arguments.
    pub fn arguments(&self) -> &Value {
        self.arguments.value()
    }

    /// Returns the arguments as the caller wrote them.
    pub fn raw_arguments(&self) -> &RawJson {
        self.arguments.raw()
    }

    /// Returns the context of the call.
    pub fn context(&self) -> &CallContext {
        &self.context
    }

    /// Returns warnings about parts that could not be validated.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Runs the tool. A panic of the tool is returned as an error.
    pub async fn run(&self) -> Result<Output, CallError> {
        handler::call_catching_panics(self.entry.handler(), self).await
    }
}

/// A call in flight. Resolves to its result; dropping it cancels the call.
pub struct CallHandle(Option<BoxFuture<'static, CallResult>>);

impl CallHandle {
    /// Creates a handle for a call that `work` runs.
    pub fn new(work: impl Future<Output = CallResult> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl Future for CallHandle {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult> {
        self.0.as_mut().expect("the future is present until drop").as_mut().poll(context)
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        let work = self.0.take();
        // A tool's guard that panics during cancellation must not take the caller down.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            handler::panic_error(panic);
        }
    }
}

/// Result of a call, with its metadata.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// Output, or the error.
    pub result: Result<Output, CallError>,
    /// Run time of the tool; `None` if it did not run.
    pub duration: Option<Duration>,
    /// Warnings about parts that could not be validated.
    pub warnings: Vec<String>,
    /// Metadata that the runtime collected.
    pub meta: CallMeta,
}

/// Metadata of a finished call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallMeta {
    /// The result came from the cache.
    pub is_cached: bool,
    /// The call joined an identical call in flight and shares its result.
    pub is_joined: bool,
    /// Time spent waiting for a queue slot; `None` if there was no wait.
    pub waited: Option<Duration>,
    /// Time spent waiting for the server to start; `None` if there was no wait.
    pub start_wait: Option<Duration>,
    /// Time spent waiting for input from the caller; `None` if there was no wait.
    pub question_wait: Option<Duration>,
    /// Tool name as the caller wrote it, if it was corrected.
    pub corrected_from: Option<String>,
    /// Handle of the stored output, if it was too large to return.
    pub stored: Option<OutputHandle>,
    /// Session that the arguments named, or that was assigned.
    pub session: Option<SessionInfo>,
}

/// Session and workspace of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Session id.
    pub id: String,
    /// Workspace name.
    pub workspace: String,
    /// Source of the workspace name.
    pub workspace_source: WorkspaceSource,
    /// One-line notice for the caller.
    pub notice: Option<String>,
}

/// Source of a workspace name, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkspaceSource {
    /// The argument `workspaceContext`.
    WorkspaceContext,
    /// The argument `context`.
    Context,
    /// The session, which is bound to a workspace.
    Session,
    /// The default workspace.
    Default,
}

impl WorkspaceSource {
    /// Returns `true` if the call itself names the workspace.
    pub fn is_explicit(self) -> bool {
        match self {
            Self::WorkspaceContext | Self::Context => true,
            Self::Session | Self::Default => false,
        }
    }
}

impl CallResult {
    /// Creates the result of a call that was rejected before the tool ran.
    pub fn rejected(error: CallError) -> Self {
        Self { result: Err(error), duration: None, warnings: Vec::new(), meta: CallMeta::default() }
    }
}

/// Runs a call of an in-process tool: validates it, runs it, validates the output.
pub(crate) async fn execute(entry: Arc<ToolEntry>, call: Call) -> CallResult {
    let valid = match ValidCall::admit(entry, call.arguments, call.context, call.checks) {
        Ok(valid) => valid,
        Err(error) => return CallResult::rejected(error),
    };
    let started = Instant::now();
    let mut result = match valid.context.deadline {
        None => valid.run().await,
        Some(deadline) => time::timeout_at(deadline, valid.run())
            .await
            .unwrap_or(Err(CallError::DeadlinePassed { executed: Executed::Yes })),
    };
    let duration = match &result {
        // The arguments did not match the function's parameters: it never ran.
        Err(error) if error.executed() == Executed::No => None,
        _ => Some(started.elapsed()),
    };
    let mut warnings = valid.warnings;
    if let (Ok(output), SchemaChecks::All) = (&mut result, call.checks) {
        warnings.extend(output.check(valid.entry.output_schema()));
    }
    CallResult { result, duration, warnings, meta: CallMeta::default() }
}
