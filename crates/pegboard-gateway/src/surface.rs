//! What the clients of one profile see, and what their calls mean.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, Ended, ToolRef};
use pegboard_core::settings::gateway::Expose;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::Snapshot;
use pegboard_runtime::{Caller, Memory};
use pegboard_wire::RpcError;
use pegboard_wire::server::{ClientDescription, Reply};

use crate::meta;
use crate::profile::Board;
use crate::result;
use crate::visit::Visit;
use auto::Choice;

mod agent;
mod auto;
mod context;
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

    /// Whether a name means one of the surface's own tools, and none of a server's.
    fn is_own(&self, name: &str) -> bool {
        meta::find(name).is_some()
    }

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

/// The surface of every client.
pub(crate) enum Surfaces {
    /// The same for all.
    One(Arc<dyn Surface>),
    /// The one that suits the client.
    Auto {
        /// For clients that take few tools, and for those of which nothing is known.
        meta: Arc<dyn Surface>,
        /// For clients that take many.
        flat: Arc<dyn Surface>,
    },
}

impl Surfaces {
    /// The surfaces that show a board in its way.
    pub(crate) fn of(board: &Arc<Board>) -> Self {
        let view = board.view();
        let hybrid = || Arc::new(hybrid::Hybrid::new(Arc::clone(board))) as Arc<dyn Surface>;
        // Where a toolbox wants its tools listed, they are, beside the few for the rest.
        let meta = || {
            if view.listed.is_empty() {
                Arc::new(meta_tools::MetaTools::new(Arc::clone(board))) as Arc<dyn Surface>
            } else {
                hybrid()
            }
        };
        let flat = || Arc::new(flat::Flat::new(Arc::clone(board)));
        match view.expose {
            Expose::Meta => Self::One(meta()),
            Expose::Flat => Self::One(flat()),
            Expose::Agent => Self::One(Arc::new(agent::OnePerServer::new(Arc::clone(board)))),
            Expose::Hybrid => Self::One(hybrid()),
            Expose::Auto => Self::Auto { meta: meta(), flat: flat() },
        }
    }

    /// The surface of a client.
    pub(crate) fn for_client(&self, client: &ClientDescription) -> &Arc<dyn Surface> {
        match self {
            Self::One(surface) => surface,
            Self::Auto { meta, flat } => match Choice::of(client).expose {
                Expose::Flat => flat,
                Expose::Meta | Expose::Agent | Expose::Hybrid | Expose::Auto => meta,
            },
        }
    }

    /// The surface of clients of which nothing is known.
    pub(crate) fn for_anybody(&self) -> &Arc<dyn Surface> {
        match self {
            Self::One(surface) | Self::Auto { meta: surface, .. } => surface,
        }
    }

    /// Why a client sees what it sees, if that was chosen for it.
    pub(crate) fn choice(&self, client: &ClientDescription) -> Option<Choice> {
        match self {
            Self::One(_) => None,
            Self::Auto { .. } => Some(Choice::of(client)),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Surface>> {
        let (first, second) = match self {
            Self::One(surface) => (surface, None),
            Self::Auto { meta, flat } => (meta, Some(flat)),
        };
        std::iter::once(first).chain(second)
    }
}

/// One of the gateway's own tools, or else a tool by any of its names.
pub(crate) fn by_any_name(visit: Visit, name: &str, arguments: RawJson) -> Answering {
    match meta::find(name) {
        Some(tool) => tool.call(visit, arguments),
        None if context::is_said(&visit, name, &arguments) => {
            context::call(visit, Call::new(name, Arguments::from(arguments)), result::of_tool_in_session)
        }
        None => tool(visit, ToolRef::Name(name.to_owned()), arguments),
    }
}

/// A tool as its server offers it.
pub(crate) fn tool(visit: Visit, tool: ToolRef, arguments: RawJson) -> Answering {
    let call = Call::new(tool, Arguments::from(arguments));
    let words = |ended: &Ended| match result::refused(ended) {
        Some(error) => Err(error),
        None => Ok(result::of_tool(ended)),
    };
    async move { visit.call_as_is(call, words).await }.boxed()
}

/// A JSON array of these items.
pub(crate) fn array(items: impl IntoIterator<Item = RawJson>) -> RawJson {
    followed_by(&RawJson::trusted(Bytes::from_static(b"[]")), items)
}

/// A JSON object of these members.
fn object(members: impl IntoIterator<Item = (String, RawJson)>) -> RawJson {
    let mut text = b"{".to_vec();
    for (name, value) in members {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(RawJson::of(&name).as_bytes());
        text.push(b':');
        text.extend_from_slice(value.as_bytes());
    }
    text.push(b'}');
    RawJson::trusted(text.into())
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
pub(crate) struct Derived<T>(Mutex<Option<(Arc<Snapshot>, Arc<T>)>>);

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Derived<T> {
    pub(crate) fn get(&self, snapshot: Arc<Snapshot>, make: impl FnOnce(&Snapshot) -> T) -> Arc<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, derived)) = &*kept
            && Arc::ptr_eq(of, &snapshot)
        {
            return Arc::clone(derived);
        }
        let derived = Arc::new(make(&snapshot));
        *kept = Some((snapshot, Arc::clone(&derived)));
        derived
    }
}
