//! Servers with a view that a session has opened (MCP Apps).

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_json::RawJson;
use pegboard_runtime::requests::ServerId;
use pegboard_wire::server::ClientSessionId;

use crate::profile::ActiveProfile;

/// Servers of which a session has read a view. The view calls the tools of its server by their own names, which may be
/// those of other servers, too, and its host passes these calls on as they are.
#[derive(Default)]
pub(crate) struct OpenedViews {
    servers: Mutex<HashMap<ClientSessionId, BTreeSet<(ToolboxName, ServerName)>>>,
    /// `true` once a view was opened. Most calls are made where there are none.
    has_any: AtomicBool,
}

impl OpenedViews {
    /// Records that a session has read a view of a server.
    pub(crate) fn open(&self, session: &ClientSessionId, server: &ServerId) {
        let server = (server.toolbox.clone(), server.server.clone());
        self.servers.lock().entry(session.clone()).or_default().insert(server);
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Forgets a session that has ended.
    pub(crate) fn end_session(&self, session: &ClientSessionId) {
        self.servers.lock().remove(session);
    }

    /// Returns the tool that a view may mean by a name: the only tool of that name among the servers of the views that
    /// the session has opened. `None` unless it is a short name that several servers may have: any other means one tool
    /// or none, whatever views are open.
    pub(crate) fn find_tool(
        &self,
        profile: &ActiveProfile,
        session: Option<&ClientSessionId>,
        name: &str,
    ) -> Option<ToolId> {
        if !self.has_any.load(Ordering::Relaxed) {
            return None;
        }
        let servers = self.servers.lock().get(session?)?.clone();
        let name = ToolName::new(name).ok()?;
        let snapshot = profile.runtime.catalogue();
        if !profile.with_scope(|scope| snapshot.is_ambiguous_short_name(name.as_str(), scope)) {
            return None;
        }
        let visible = servers.into_iter().filter(|(toolbox, _)| profile.has_toolbox(toolbox));
        let ids = visible.map(|(toolbox, server)| ToolId { toolbox, server, name: name.clone() });
        let mut tools =
            ids.filter(|id| snapshot.by_id(id).is_some_and(|tool| is_for_views(&tool.entry.definition())));
        let only = tools.next()?;
        tools.next().is_none().then_some(only)
    }
}

/// Returns `true` if views may call a tool. Without a `visibility` they may.
fn is_for_views(definition: &RawJson) -> bool {
    let visibility = definition.at(&["_meta", "ui", "visibility"]);
    visibility
        .and_then(|visibility| visibility.read::<Vec<String>>().ok())
        .is_none_or(|visibility| visibility.iter().any(|audience| audience == "app"))
}
