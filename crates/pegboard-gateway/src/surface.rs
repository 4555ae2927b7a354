//! What the clients of one profile see, and what their calls mean.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, ToolRef};
use pegboard_core::settings::gateway::Expose;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::Snapshot;
use pegboard_runtime::{Caller, Memory};
use pegboard_wire::RpcError;
use pegboard_wire::server::Reply;

use crate::meta;
use crate::profile::Board;
use crate::result;
use crate::visit::Visit;

mod flat;
mod hybrid;
mod meta_tools;
mod named;

/// What the clients of one profile see, and what their calls mean.
pub(crate) trait Surface: Send + Sync + 'static {
    /// What its clients remember: with a session of its own a client opens toolboxes, or all are open to it.
    fn memory(&self) -> Memory;

    /// What a model should know, if anything.
    fn instructions(&self) -> Option<String>;

    /// The tools that are listed for somebody, as a JSON array.
    fn list(&self, viewer: &Viewer<'_>) -> RawJson;

    /// Whether other tools are listed when the catalogue has others.
    fn follows_catalogue(&self) -> bool;

    /// What a call means. Every spelling of a tool's name is good on every surface.
    fn call(&self, visit: Visit, name: &str, arguments: RawJson) -> Answering {
        by_any_name(visit, name, arguments)
    }
}

/// A call of a client on its way to a reply.
pub(crate) type Answering = BoxFuture<'static, Result<Reply, RpcError>>;

/// Somebody who wants to see a list.
pub(crate) struct Viewer<'v> {
    pub(crate) caller: &'v Caller,
    pub(crate) life: Life,
}

/// Whether a client is remembered between its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has a session.
    Session,
    /// Its every request stands alone.
    Stateless,
}

/// The surface that shows a board in this way; `None` if there is none of that kind.
pub(crate) fn surface(board: &Arc<Board>, expose: Expose) -> Option<Arc<dyn Surface>> {
    let board = Arc::clone(board);
    match expose {
        Expose::Meta => Some(Arc::new(meta_tools::MetaTools::new(board))),
        Expose::Flat => Some(Arc::new(flat::Flat::new(board))),
        Expose::Hybrid => Some(Arc::new(hybrid::Hybrid::new(board))),
        Expose::Agent | Expose::Auto => None,
    }
}

/// One of the gateway's own tools, or else a tool by any of its names.
pub(crate) fn by_any_name(visit: Visit, name: &str, arguments: RawJson) -> Answering {
    match meta::find(name) {
        Some(tool) => tool.call(visit, arguments),
        None => tool(visit, ToolRef::Name(name.to_owned()), arguments),
    }
}

/// A tool as its server offers it.
pub(crate) fn tool(visit: Visit, tool: ToolRef, arguments: RawJson) -> Answering {
    async move { visit.call(Call::new(tool, Arguments::from(arguments)), result::of_tool).await }.boxed()
}

/// A JSON array of these items.
fn array(items: impl IntoIterator<Item = RawJson>) -> RawJson {
    followed_by(&RawJson::trusted(Bytes::from_static(b"[]")), items)
}

/// A JSON array with more items at its end.
fn followed_by(list: &RawJson, items: impl IntoIterator<Item = RawJson>) -> RawJson {
    let mut text = list.as_bytes().to_vec();
    text.pop();
    for item in items {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(item.as_bytes());
    }
    text.push(b']');
    RawJson::trusted(text.into())
}

/// Something made from the catalogue, made anew when the catalogue is another.
struct Derived<T>(Mutex<Option<(Arc<Snapshot>, Arc<T>)>>);

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Derived<T> {
    fn get(&self, snapshot: Arc<Snapshot>, make: impl FnOnce(&Snapshot) -> T) -> Arc<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, made)) = &*kept
            && Arc::ptr_eq(of, &snapshot)
        {
            return Arc::clone(made);
        }
        let made = Arc::new(make(&snapshot));
        *kept = Some((snapshot, Arc::clone(&made)));
        made
    }
}
