//! Calls whose arguments say in which session and workspace they are made.

use futures_util::future::FutureExt;
use pegboard_core::call::{Call, Ended};
use pegboard_json::RawJson;
use pegboard_runtime::sessions::for_the_runtime;
use serde_json::Value;

use super::Answering;
use crate::visit::Visit;

/// Carries out a call whose arguments may say where it belongs, and puts its end into words.
pub(super) fn call(
    visit: Visit,
    mut call: Call,
    words: impl FnOnce(&Ended) -> RawJson + Send + 'static,
) -> Answering {
    call.context.options.reads_context = true;
    async move { visit.call(call, words).await }.boxed()
}

/// Whether a tool is called by its name among agents and modes, with word of where the call belongs.
///
/// Whoever found the tool by that name was told to say so. Under every other name, arguments are the tool's alone.
pub(super) fn is_said(visit: &Visit, name: &str, arguments: &RawJson) -> bool {
    // Flat names, which most calls have, are told apart at once.
    if name.contains("__") || !for_the_runtime(&Value::Null).any(|said| arguments.get(said).is_some()) {
        return false;
    }
    let snapshot = visit.board.runtime.catalogue();
    visit.board.with_scope(|scope| {
        let found = snapshot.resolve(name, scope, &|_| false);
        found.is_ok_and(|found| *found.tool.agent_mode_name == *name)
    })
}
