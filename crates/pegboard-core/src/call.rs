//! A call from request to end, and the seam through which chains, batches and agents make calls.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::entry::ToolEntry;
use crate::error::CallError;
use crate::handler;
use crate::validation::Violation;

/// Something that finds tools and carries out calls. Whatever calls tools calls them through this.
pub trait Invoker: Send + Sync {
    /// The tool of this name, if there is one.
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>>;

    /// Starts a call. A call that is refused is a call that has ended at once.
    fn start(&self, call: Call) -> Running;
}

/// A request to carry out a tool. `Debug` leaves the arguments out, so that they do not reach a log.
#[derive(Clone)]
pub struct Call {
    /// The name of the tool, as the caller spells it.
    pub tool: String,
    /// What the tool is given.
    pub arguments: Value,
    /// Who asks, and until when.
    pub context: CallContext,
    /// What is checked on the way.
    pub checks: Checks,
}

impl Call {
    /// A call with every check, from nowhere in particular.
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        Self { tool: tool.into(), arguments, context: CallContext::default(), checks: Checks::default() }
    }
}

/// The circumstances of a call.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallContext {
    /// When the caller stops waiting. A tool that can finish sooner with less should.
    pub deadline: Option<Instant>,
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

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("tool", &self.tool)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// A call that may be carried out: the tool exists and takes these arguments. `Debug` leaves them out.
pub struct ValidCall {
    entry: Arc<ToolEntry>,
    arguments: Value,
    context: CallContext,
    warnings: Vec<String>,
}

impl ValidCall {
    /// Admits a call of `entry`, or lists everything that is wrong with its arguments.
    pub fn admit(
        entry: Arc<ToolEntry>,
        arguments: Value,
        context: CallContext,
        checks: Checks,
    ) -> Result<Self, CallError> {
        let mut warnings = Vec::new();
        // No arguments for a tool that takes an object are an empty object.
        let arguments = match arguments {
            Value::Null if entry.input_schema().as_json()["type"] == "object" => Value::Object(Map::new()),
            given => given,
        };
        if checks == Checks::All {
            let verdict = entry.input_schema().check(&arguments);
            if !verdict.valid {
                return Err(CallError::InvalidParameters { violations: verdict.errors });
            }
            warnings = verdict.warnings;
        }
        Ok(Self { entry, arguments, context, warnings })
    }

    /// The tool that is called.
    pub fn entry(&self) -> &Arc<ToolEntry> {
        &self.entry
    }

    /// What the tool is given.
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// The circumstances of the call.
    pub fn context(&self) -> &CallContext {
        &self.context
    }
}

impl fmt::Debug for ValidCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidCall")
            .field("entry", &self.entry)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// What a tool answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The answer itself.
    pub data: Value,
    /// Where the answer breaks the tool's output schema. The answer stands all the same.
    pub mismatches: Vec<Violation>,
}

impl Output {
    /// An answer that nobody has held against a schema yet.
    pub fn new(data: Value) -> Self {
        Self { data, mismatches: Vec::new() }
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
        let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
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
}

impl Ended {
    /// The end of a call whose tool did not run.
    pub fn refused(error: CallError) -> Self {
        Self { result: Err(error), duration: None, warnings: Vec::new() }
    }
}

/// Carries out one call of an in-process tool: admit it, run it, hold its answer against the output schema.
pub(crate) async fn carry_out(entry: Arc<ToolEntry>, call: Call) -> Ended {
    let valid = match ValidCall::admit(entry, call.arguments, call.context, call.checks) {
        Ok(valid) => valid,
        Err(error) => return Ended::refused(error),
    };
    let started = Instant::now();
    let mut result = handler::call_guarded(valid.entry.handler(), &valid).await;
    let duration = match &result {
        // The arguments did not fit the function's parameters: it never ran.
        Err(error) if !error.kind().has_executed() => None,
        _ => Some(started.elapsed()),
    };
    let mut warnings = valid.warnings;
    if let (Ok(output), Checks::All) = (&mut result, call.checks) {
        let verdict = valid.entry.output_schema().check(&output.data);
        output.mismatches = verdict.errors;
        warnings.extend(verdict.warnings);
    }
    Ended { result, duration, warnings }
}
