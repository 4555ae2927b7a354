//! Surfaces: the tools that clients see, and the meaning of their calls.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, CallResult, ToolRef};
use pegboard_core::id::ToolId;
use pegboard_core::settings::gateway::Expose;
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, SessionMode};
use pegboard_wire::RpcError;
use pegboard_wire::era::Era;
use pegboard_wire::server::{ClientDescription, ServiceReply};

use crate::client_request::ClientRequest;
use crate::meta;
use crate::profile::{ActiveProfile, ProfileView};
use crate::result;
use auto::SurfaceChoice;

mod agent;
mod auto;
mod context;
mod flat;
mod hybrid;
mod meta_tools;
mod named_tools;

/// The tools that clients of one profile see, and the meaning of their calls.
pub(crate) trait Surface: Send + Sync + 'static {
    /// Session mode of its callers: toolboxes are opened one by one, or all are open.
    fn session_mode(&self) -> SessionMode;

    /// Server instructions for the model.
    fn instructions(&self) -> Option<String>;

    /// Kind of the surface, which tells it from the others of its profile.
    fn expose(&self) -> Expose;

    /// Lists the tools for a caller, as a JSON array.
    fn list(&self, request: &ListRequest<'_>) -> RawJson;

    /// Returns a digest of the list, which is enough to detect a change.
    fn list_digest(&self, request: &ListRequest<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.list(request).as_bytes().hash(&mut hasher);
        hasher.finish()
    }

    /// Returns `true` if the list changes with the catalogue.
    fn follows_catalogue(&self) -> bool;

    /// Returns `true` if a name belongs to the surface itself and not to a server's tool.
    fn owns_name(&self, name: &str) -> bool {
        meta::find(name).is_some()
    }

    /// Returns the tool that is listed under a name of its own, as its server gave it.
    fn find_listed(&self, _name: &str) -> Option<ToolId> {
        None
    }

    /// Executes a call. Every spelling of a tool's name is accepted on every surface.
    fn call(&self, request: ClientRequest, name: &str, arguments: RawJson) -> ReplyFuture {
        call_by_name(request, name, arguments)
    }
}

/// Future of the reply to a client request.
pub(crate) type ReplyFuture = BoxFuture<'static, Result<ServiceReply, RpcError>>;

/// A request for a list of tools.
pub(crate) struct ListRequest<'v> {
    pub(crate) caller: &'v Caller,
    pub(crate) era: Era,
}

/// The surfaces of a profile.
pub(crate) struct Surfaces {
    /// The view that they expose.
    pub(crate) view: Arc<ProfileView>,
    /// For all clients, or with `auto` for clients that accept few tools and for unknown clients.
    default: Arc<dyn Surface>,
    /// For clients that accept many tools; `None` unless the surface is chosen by client.
    for_many_tools: Option<Arc<dyn Surface>>,
}

impl Surfaces {
    /// Builds the surfaces of a profile.
    pub(crate) fn build(profile: &Arc<ActiveProfile>) -> Self {
        let view = profile.view();
        let hybrid = || Arc::new(hybrid::HybridSurface::new(Arc::clone(profile))) as Arc<dyn Surface>;
        // Toolboxes with `listed` tools need a hybrid list.
        let meta = || {
            if view.listed.is_empty() {
                Arc::new(meta_tools::MetaSurface::new(Arc::clone(profile))) as Arc<dyn Surface>
            } else {
                hybrid()
            }
        };
        let flat = || Arc::new(flat::FlatSurface::new(Arc::clone(profile))) as Arc<dyn Surface>;
        let (default, for_many_tools) = match view.expose {
            Expose::Meta => (meta(), None),
            Expose::Flat => (flat(), None),
            Expose::Agent => (Arc::new(agent::AgentSurface::new(Arc::clone(profile))) as _, None),
            Expose::Hybrid => (hybrid(), None),
            Expose::Auto => (meta(), Some(flat())),
        };
        Self { view, default, for_many_tools }
    }

    /// Returns the surface for a client.
    pub(crate) fn for_client(&self, client: &ClientDescription) -> &Arc<dyn Surface> {
        match &self.for_many_tools {
            Some(flat) if SurfaceChoice::for_client(client).expose == Expose::Flat => flat,
            Some(_) | None => &self.default,
        }
    }

    /// Returns the surface for unknown clients.
    pub(crate) fn default_surface(&self) -> &Arc<dyn Surface> {
        &self.default
    }

    /// Returns the choice made for a client and its reason, if there was one.
    pub(crate) fn choice(&self, client: &ClientDescription) -> Option<SurfaceChoice> {
        self.for_many_tools.is_some().then(|| SurfaceChoice::for_client(client))
    }

    /// Iterates over all surfaces.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Surface>> {
        std::iter::once(&self.default).chain(&self.for_many_tools)
    }
}

/// Calls a meta-tool, or else a tool by any of its names.
pub(crate) fn call_by_name(request: ClientRequest, name: &str, arguments: RawJson) -> ReplyFuture {
    match meta::find(name) {
        Some(tool) => tool.call(request, arguments),
        None if context::has_call_context(&request, name, &arguments) => context::call(
            request,
            Call::new(name, CallArguments::from(arguments)),
            result::named_tool_result_in_session,
        ),
        None => call_tool(request, ToolRef::Name(name.to_owned()), arguments),
    }
}

/// Calls a server's tool; its result and errors pass unchanged.
pub(crate) fn call_tool(request: ClientRequest, tool: ToolRef, arguments: RawJson) -> ReplyFuture {
    let call = Call::new(tool, CallArguments::from(arguments));
    let render = |call_result: &CallResult| match result::upstream_error(call_result)
        .or_else(|| result::unknown_tool(call_result))
    {
        Some(error) => Err(error),
        None => Ok(result::tool_result(call_result)),
    };
    request.call_with_rpc_errors(call, render).boxed()
}

/// Returns a JSON array of these items.
pub(crate) fn json_array(items: impl IntoIterator<Item = RawJson>) -> RawJson {
    append(&RawJson::trusted(Bytes::from_static(b"[]")), items)
}

/// Returns a JSON object of these members.
fn json_object(members: impl IntoIterator<Item = (String, RawJson)>) -> RawJson {
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

/// Returns a JSON array with more items appended.
fn append(list: &RawJson, items: impl IntoIterator<Item = RawJson>) -> RawJson {
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
