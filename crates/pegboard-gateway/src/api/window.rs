//! What one principal sees of a gateway.

use std::sync::Arc;
use std::time::SystemTime;

use pegboard_core::call::ToolRef;
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_runtime::{Caller, CallerOptions, Leaves, Memory, Runtime};
use pegboard_wire::http::server::HttpServerOptions;

use super::problem::Problem;
use super::{Api, Principal};

/// What one principal sees of a gateway.
pub(super) struct Window {
    pub(super) api: Api,
    pub(super) who: Principal,
    pub(super) options: HttpServerOptions,
}

impl Window {
    pub(super) fn new(api: Api, who: Principal, options: HttpServerOptions) -> Self {
        Self { api, who, options }
    }

    /// What carries out calls, if anything does.
    pub(super) fn runtime(&self) -> Result<&Runtime, Problem> {
        self.api.runtime.as_ref().ok_or_else(Problem::not_running)
    }

    /// What time it is.
    pub(super) fn now(&self) -> SystemTime {
        self.api.clock.now()
    }

    /// Somebody who makes calls for this principal, for one request or for all that name the session.
    pub(super) fn caller(&self, session: Option<&str>) -> Result<Caller, Problem> {
        let runtime = self.runtime()?;
        let new = || {
            runtime.caller(CallerOptions {
                principal: self.who.name().to_owned(),
                memory: Memory::Everything,
                leaves: Leaves::Outputs,
                ..CallerOptions::default()
            })
        };
        match session {
            None => Ok(new()),
            Some(session) => self.api.visitors.get(self.who.name(), session, new),
        }
    }

    /// The tool that a text means: its address, as `toolbox/server/tool`, or any name of it.
    pub(super) fn tool_ref(runtime: &Runtime, text: &str) -> ToolRef {
        address(runtime, text).map_or_else(|| text.into(), ToolRef::Id)
    }
}

/// The tool at an address. A text that begins with no toolbox is a name, whatever is in it.
fn address(runtime: &Runtime, text: &str) -> Option<ToolId> {
    let mut parts = text.splitn(3, '/');
    let (toolbox, server, name) = (parts.next()?, parts.next()?, parts.next()?);
    let id = ToolId {
        toolbox: ToolboxName::new(toolbox).ok()?,
        server: ServerName::new(server).ok()?,
        name: ToolName::new(name).ok()?,
    };
    runtime.toolboxes().iter().any(|known| known.name == id.toolbox).then_some(id)
}

/// A window as routes have it.
pub(super) type Shown = axum::extract::State<Arc<Window>>;
