//! `run_chain`: tools one after another, in one call.

use futures_util::future::FutureExt;
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, Invoker};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;

use super::MetaTool;
use crate::result;
use crate::surface::Answering;
use crate::visit::Visit;

/// Tools one after another; the runtime carries them out.
pub(super) struct RunChain;

impl MetaTool for RunChain {
    fn name(&self) -> &'static str {
        "run_chain"
    }

    fn definition(&self, caller: &Caller) -> Option<RawJson> {
        caller.find("run_chain").map(|entry| entry.definition())
    }

    fn call(&self, visit: Visit, arguments: RawJson) -> Answering {
        async move { visit.call(Call::new("run_chain", Arguments::from(arguments)), result::of_own_tool).await }.boxed()
    }
}
