//! One way to see the tools, and what there is to see by it.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pegboard_core::id::ToolboxName;
use pegboard_core::settings::AutoOpen;
use pegboard_core::settings::gateway::{Expose, Profile};
use pegboard_runtime::catalogue::{OutputSchemas, Scope, Snapshot, Tool};
use pegboard_runtime::toolbox::ConfiguredToolbox;
use pegboard_runtime::{Caller, CallerOptions, Memory, Runtime};

/// What there is to see for the clients of one profile.
pub(crate) struct Board {
    pub(crate) runtime: Runtime,
    /// What the profile is called.
    pub(crate) name: String,
    /// Who its clients are; empty if nobody in particular.
    principal: String,
    /// How its clients see the tools.
    view: ArcSwap<View>,
}

/// How the clients of a profile see the tools. It never changes; another takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) expose: Expose,
    /// The toolboxes that exist for its clients; `None` for all.
    toolboxes: Option<BTreeSet<ToolboxName>>,
    /// The names of tools that are listed by themselves.
    pub(crate) pinned: Vec<String>,
    /// The toolboxes whose tools are listed by themselves.
    pub(crate) listed: BTreeSet<ToolboxName>,
    pub(crate) naming: Naming,
}

/// What listed tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By their flat names.
    Flat,
    /// By their plain names where no two share one.
    Transparent,
}

impl View {
    /// What a profile says, or the toolbox that it names and that is not there.
    pub(crate) fn of(
        profile: &Profile,
        listed: &BTreeSet<ToolboxName>,
        configured: &BTreeSet<ToolboxName>,
    ) -> Result<Self, ToolboxName> {
        let find = |wanted: &ToolboxName| {
            if configured.contains(wanted) { Ok(wanted.clone()) } else { Err(wanted.clone()) }
        };
        let toolboxes = profile.toolboxes.as_ref();
        let toolboxes: Option<BTreeSet<ToolboxName>> =
            toolboxes.map(|names| names.iter().map(find).collect()).transpose()?;
        let is_here = |name: &&ToolboxName| toolboxes.as_ref().is_none_or(|here| here.contains(*name));
        Ok(Self {
            listed: listed.iter().filter(is_here).cloned().collect(),
            toolboxes,
            expose: profile.expose,
            pinned: profile.pinned.clone(),
            naming: if profile.transparent { Naming::Transparent } else { Naming::Flat },
        })
    }

    fn has(&self, toolbox: &ToolboxName) -> bool {
        self.toolboxes.as_ref().is_none_or(|toolboxes| toolboxes.contains(toolbox))
    }
}

impl Board {
    /// The board of a profile, for one principal.
    pub(crate) fn new(runtime: &Runtime, principal: &str, name: &str, view: View) -> Self {
        let (principal, name) = (principal.to_owned(), name.to_owned());
        Self { runtime: runtime.clone(), name, principal, view: ArcSwap::from_pointee(view) }
    }

    /// How its clients see the tools now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Has its clients see the tools in another way; whether it is another.
    pub(crate) fn show(&self, view: View) -> bool {
        let is_other = *self.view.load().as_ref() != view;
        if is_other {
            self.view.store(Arc::new(view));
        }
        is_other
    }

    /// Somebody who makes calls here.
    pub(crate) fn caller(&self, memory: Memory) -> Caller {
        let (principal, toolboxes) = (self.principal.clone(), self.view.load().toolboxes.clone());
        self.runtime.caller(CallerOptions { principal, memory, toolboxes, ..CallerOptions::default() })
    }

    /// Somebody who does what no client in particular wants done.
    pub(crate) fn nobody(&self) -> Caller {
        let opens_by_itself = self.runtime.settings().auto_open != AutoOpen::Never;
        self.caller(if opens_by_itself { Memory::Stateless } else { Memory::Everything })
    }

    /// Lets somebody who was here before see what there is to see now.
    pub(crate) fn welcome(&self, caller: &Caller, memory: Memory) {
        caller.see(memory, self.view.load().toolboxes.as_ref());
    }

    /// The toolboxes as they are configured, in order.
    pub(crate) fn toolboxes(&self) -> Vec<ConfiguredToolbox> {
        let mut toolboxes = self.runtime.toolboxes();
        toolboxes.retain(|toolbox| self.has(&toolbox.name));
        toolboxes
    }

    /// Whether a toolbox exists here.
    pub(crate) fn has(&self, toolbox: &ToolboxName) -> bool {
        self.view.load().has(toolbox)
    }

    /// Looks at the tools that exist here.
    pub(crate) fn with_scope<T>(&self, look: impl FnOnce(Scope<'_>) -> T) -> T {
        let view = self.view.load();
        match &view.toolboxes {
            None => look(Scope::All),
            Some(_) => look(Scope::Only(&|toolbox| view.has(toolbox))),
        }
    }

    /// The tools that exist here, in order.
    pub(crate) fn tools(&self, snapshot: &Snapshot) -> Vec<Arc<Tool>> {
        let view = self.view.load();
        snapshot.tools().iter().filter(|tool| view.has(&tool.id.toolbox)).cloned().collect()
    }

    /// Which listed tools say what their answer looks like. A stored answer does not look like that, and a client
    /// may refuse it then.
    pub(crate) fn output_schemas(&self) -> OutputSchemas {
        let settings = self.runtime.settings();
        let is_limited =
            settings.tool_response_max_bytes.is_some() || settings.tool_output.session_token_budget.is_some();
        if is_limited { OutputSchemas::LeftOut } else { OutputSchemas::LeftOutWhereCapped }
    }
}
