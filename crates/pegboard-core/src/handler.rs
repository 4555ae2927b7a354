//! The code behind a tool.

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

/// Carries out calls of one tool. Most tools are typed functions and need not implement this.
///
/// Dropping the future cancels the call, so whatever must happen then belongs in a guard.
pub trait Handler: Send + Sync + 'static {
    /// Carries out a call whose arguments are valid.
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>>;
}

/// A function with typed arguments and a typed answer, as a handler.
pub(crate) struct Function<A, R, H> {
    function: H,
    signature: PhantomData<fn(A) -> R>,
}

impl<A, R, H> Function<A, R, H> {
    pub(crate) fn new(function: H) -> Self {
        Self { function, signature: PhantomData }
    }
}

impl<A, R, H, F> Handler for Function<A, R, H>
where
    A: DeserializeOwned + Send + 'static,
    R: Serialize + 'static,
    H: Fn(A) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ToolError>> + Send,
{
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        Box::pin(async move {
            let arguments = A::deserialize(call.arguments()).map_err(misfit)?;
            let answer = (self.function)(arguments).await.map_err(CallError::Failed)?;
            let data = serde_json::to_value(answer).map_err(|error| {
                CallError::Failed(ToolError::new(format_args!(
                    "the answer cannot be written as JSON: {error}"
                )))
            })?;
            Ok(Output::new(data))
        })
    }
}

/// Arguments that pass the schema, or were not checked, and still do not fit the function's parameters.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn misfit(error: serde_json::Error) -> CallError {
    let masked = "$: the arguments do not fit the tool's parameters";
    CallError::InvalidParameters { violations: vec![Violation::new(format!("$: {error}"), masked)] }
}

/// Carries out a call so that a panic of the tool is an error of the call and of nothing else.
pub(crate) async fn call_guarded(handler: &dyn Handler, call: &ValidCall) -> Result<Output, CallError> {
    match catch_unwind(AssertUnwindSafe(|| handler.call(call))) {
        Ok(work) => Guarded(Some(work)).await,
        Err(panic) => Err(panicked(panic)),
    }
}

/// The work of a tool. Neither polling nor dropping it lets a panic out.
struct Guarded<'w>(Option<BoxFuture<'w, Result<Output, CallError>>>);

impl Future for Guarded<'_> {
    type Output = Result<Output, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.0.as_mut().expect("the work is there until it has ended");
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(result),
            Err(panic) => Poll::Ready(Err(panicked(panic))),
        }
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        let work = self.0.take();
        // A guard of the tool that panics while the call is given up must not take the caller down.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            panicked(panic);
        }
    }
}

/// What a panic said. What it carried is dropped as carefully as everything else of a tool.
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> CallError {
    let message = panic_text(&*panic);
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // One that panics even now is let be.
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
