//! Handlers: the code behind a tool.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::ValidCall;
use crate::error::{CallError, ToolError};
use crate::output::Output;
use crate::validation::Violation;

/// Runs calls of one tool. Most tools are typed functions and need not implement this.
///
/// Dropping the future cancels the call; put cleanup in a guard.
pub trait Handler: Send + Sync + 'static {
    /// Runs a call with valid arguments.
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>>;
}

/// Handler for a function with typed argument and return value.
pub(crate) struct TypedFunction<A, R, H> {
    function: H,
    signature: PhantomData<fn(A) -> R>,
}

impl<A, R, H> TypedFunction<A, R, H> {
    pub(crate) fn new(function: H) -> Self {
        Self { function, signature: PhantomData }
    }
}

impl<A, R, H, F> Handler for TypedFunction<A, R, H>
where
    A: DeserializeOwned + Send + 'static,
    R: Serialize + 'static,
    H: Fn(A) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ToolError>> + Send,
{
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        Box::pin(async move {
            let arguments = A::deserialize(call.arguments()).map_err(argument_mismatch)?;
            let answer = (self.function)(arguments).await.map_err(CallError::Failed)?;
            let data = serde_json::to_value(answer).map_err(|error| {
                CallError::Failed(ToolError::new(format_args!(
                    "cannot serialize the output as JSON: {error}"
                )))
            })?;
            Ok(Output::new(data))
        })
    }
}

/// Returns the error for arguments that passed the schema, or were not checked, and do not deserialize into
/// the function's parameter.
#[expect(clippy::needless_pass_by_value, reason = "signature required by map_err")]
fn argument_mismatch(error: serde_json::Error) -> CallError {
    let masked = "$: the arguments do not match the tool's parameters";
    CallError::InvalidParameters { violations: vec![Violation::new(format!("$: {error}"), masked)] }
}

/// Runs a call; a panic of the tool is returned as an error.
pub(crate) async fn call_catching_panics(
    handler: &dyn Handler,
    call: &ValidCall,
) -> Result<Output, CallError> {
    match catch_unwind(AssertUnwindSafe(|| handler.call(call))) {
        Ok(work) => CatchPanic(Some(work)).await,
        Err(panic) => Err(panic_error(panic)),
    }
}

/// Future of a tool. Catches panics while polling and dropping.
struct CatchPanic<'w>(Option<BoxFuture<'w, Result<Output, CallError>>>);

impl Future for CatchPanic<'_> {
    type Output = Result<Output, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.0.as_mut().expect("the future is present until drop");
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(result),
            Err(panic) => Poll::Ready(Err(panic_error(panic))),
        }
    }
}

impl Drop for CatchPanic<'_> {
    fn drop(&mut self) {
        let work = self.0.take();
        // A tool's guard that panics during cancellation must not take the caller down.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            panic_error(panic);
        }
    }
}

/// Converts a panic into an error. The payload is dropped with panics caught, too.
pub(crate) fn panic_error(panic: Box<dyn Any + Send>) -> CallError {
    let message = panic_text(&*panic);
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Leak a payload that panics on drop as well.
        std::mem::forget(another);
    }
    CallError::Panicked { message }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
        .to_owned()
}
