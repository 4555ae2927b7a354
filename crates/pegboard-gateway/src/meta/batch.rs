//! `batch`: several calls in one.

use futures_util::future::FutureExt;
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, Invoker};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;

use super::MetaTool;
use crate::result;
use crate::surface::Answering;
use crate::visit::Visit;

/// Several calls in one; the runtime carries them out.
pub(super) struct Batch;

impl MetaTool for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn definition(&self, caller: &Caller) -> Option<RawJson> {
        caller.find("batch").map(|entry| entry.definition())
    }

    fn call(&self, visit: Visit, arguments: RawJson) -> Answering {
        async move { visit.call(Call::new("batch", Arguments::from(arguments)), result::of_own_tool).await }
            .boxed()
    }
}
