//! A profile at run time: its view of the catalogue.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pegboard_core::id::{ToolId, ToolboxName};
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::settings::AutoOpen;
use pegboard_core::settings::gateway::{Expose, Profile};
use pegboard_runtime::catalogue::{CatalogueTool, NameCorrections, OutputSchemas, Snapshot, ToolboxScope};
use pegboard_runtime::toolbox::{ConfiguredToolbox, ListingProgress};
use pegboard_runtime::{Caller, CallerOptions, Runtime, SessionMode};

use crate::catalogue_memo::CatalogueMemo;
use crate::client_request::session_peer::WatchedSessions;
use crate::header_parameters::HeaderParameterCache;
use crate::list_cache::ListCache;
use crate::resource_index::ResourceIndex;

/// A profile at run time, for one principal.
pub(crate) struct ActiveProfile {
    pub(crate) runtime: Runtime,
    /// Profile name.
    pub(crate) name: String,
    /// Owner of what its clients leave behind: their principal.
    owner: Owner,
    /// Current view.
    view: ArcSwap<ProfileView>,
    pub(crate) watched_sessions: WatchedSessions,
}

/// View of the catalogue that a profile exposes. Immutable; a reload replaces it.
#[derive(Clone)]
pub(crate) struct ProfileView {
    pub(crate) expose: Expose,
    /// Toolboxes that exist for its clients; `None` for all.
    toolboxes: Option<BTreeSet<ToolboxName>>,
    /// Names of tools that are listed directly.
    pub(crate) pinned: Vec<String>,
    /// Toolboxes with directly listed tools.
    pub(crate) listed: BTreeSet<ToolboxName>,
    pub(crate) naming: Naming,
    pub(crate) corrections: NameCorrections,
    /// Values computed from the catalogue. Clones of the view, for other principals, share them.
    memos: Arc<ViewMemos>,
}

/// Values computed from the catalogue for one view.
#[derive(Default)]
struct ViewMemos {
    resources: CatalogueMemo<ResourceIndex>,
    lists: CatalogueMemo<ListCache>,
    header_parameters: CatalogueMemo<HeaderParameterCache>,
}

/// Naming scheme of listed tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Flat names.
    Flat,
    /// Plain names where they are unique.
    Transparent,
}

impl ProfileView {
    /// Resolves a configured profile. `Err` is a toolbox that the profile names and that does not exist.
    pub(crate) fn resolve(
        profile: &Profile,
        listed: &BTreeSet<ToolboxName>,
        configured: &BTreeSet<ToolboxName>,
    ) -> Result<Self, ToolboxName> {
        let require = |name: &ToolboxName| {
            if configured.contains(name) { Ok(name.clone()) } else { Err(name.clone()) }
        };
        let toolboxes = profile.toolboxes.as_ref();
        let toolboxes: Option<BTreeSet<ToolboxName>> =
            toolboxes.map(|names| names.iter().map(require).collect()).transpose()?;
        let is_visible = |name: &&ToolboxName| toolboxes.as_ref().is_none_or(|names| names.contains(*name));
        Ok(Self {
            listed: listed.iter().filter(is_visible).cloned().collect(),
            toolboxes,
            expose: profile.expose,
            pinned: profile.pinned.clone(),
            naming: if profile.transparent { Naming::Transparent } else { Naming::Flat },
            corrections: if profile.corrections {
                NameCorrections::WithinServer
            } else {
                NameCorrections::Off
            },
            memos: Arc::default(),
        })
    }

    /// Returns `true` if both expose the same.
    fn is_same(&self, other: &Self) -> bool {
        let Self { expose, toolboxes, pinned, listed, naming, corrections, memos: _ } = self;
        (expose, toolboxes, pinned, listed) == (&other.expose, &other.toolboxes, &other.pinned, &other.listed)
            && (naming, corrections) == (&other.naming, &other.corrections)
    }

    /// Returns `true` if a toolbox exists in this view.
    pub(crate) fn has_toolbox(&self, toolbox: &ToolboxName) -> bool {
        self.toolboxes.as_ref().is_none_or(|toolboxes| toolboxes.contains(toolbox))
    }

    /// Returns the prompts and resources of a catalogue snapshot.
    pub(crate) fn resource_index(&self, snapshot: &Snapshot) -> Arc<ResourceIndex> {
        self.memos.resources.get(snapshot, |snapshot| ResourceIndex::build(self, snapshot))
    }

    /// Returns the encoded lists of a catalogue snapshot.
    pub(crate) fn lists(&self, snapshot: &Snapshot) -> Arc<ListCache> {
        self.memos.lists.get(snapshot, |_| ListCache::default())
    }

    /// Returns the mirrored arguments of the tools in a catalogue snapshot.
    pub(crate) fn header_parameters(&self, snapshot: &Snapshot) -> Arc<HeaderParameterCache> {
        self.memos.header_parameters.get(snapshot, |_| HeaderParameterCache::default())
    }
}

impl ActiveProfile {
    /// Creates a profile for one principal.
    pub(crate) fn new(runtime: &Runtime, owner: &Owner, name: &str, view: ProfileView) -> Self {
        let (owner, name) = (owner.clone(), name.to_owned());
        Self {
            runtime: runtime.clone(),
            name,
            owner,
            view: ArcSwap::from_pointee(view),
            watched_sessions: WatchedSessions::default(),
        }
    }

    /// Returns the current view.
    pub(crate) fn view(&self) -> Arc<ProfileView> {
        self.view.load_full()
    }

    /// Replaces the view; returns `true` if it differs from the old one.
    pub(crate) fn replace_view(&self, view: ProfileView) -> bool {
        let is_changed = !self.view.load().is_same(&view);
        if is_changed {
            self.view.store(Arc::new(view));
        }
        is_changed
    }

    /// Creates a caller for a client of this profile.
    pub(crate) fn caller(&self, session_mode: SessionMode) -> Caller {
        let view = self.view.load();
        self.runtime.caller(CallerOptions {
            owner: self.owner.clone(),
            session_mode,
            toolboxes: view.toolboxes.clone(),
            corrections: view.corrections,
            ..CallerOptions::default()
        })
    }

    /// Returns the scope of the data that its clients see.
    pub(crate) fn scope(&self) -> OwnerScope {
        OwnerScope::Only(self.owner.clone())
    }

    /// Creates a caller for work that no particular client requested.
    pub(crate) fn anonymous_caller(&self) -> Caller {
        let opens_by_itself = self.runtime.settings().auto_open != AutoOpen::Never;
        self.caller(if opens_by_itself { SessionMode::Stateless } else { SessionMode::AllOpen })
    }

    /// Applies the current toolboxes of the profile to an existing caller.
    pub(crate) fn refresh_scope(&self, caller: &Caller, session_mode: SessionMode) {
        let view = self.view.load();
        caller.set_visibility(session_mode, view.toolboxes.as_ref(), view.corrections);
    }

    /// Returns the configured toolboxes, in order.
    pub(crate) fn toolboxes(&self) -> Vec<ConfiguredToolbox> {
        let mut toolboxes = self.runtime.toolboxes();
        toolboxes.retain(|toolbox| self.has_toolbox(&toolbox.name));
        toolboxes
    }

    /// Returns the progress of the listings of its servers.
    pub(crate) fn listing_progress(&self) -> ListingProgress {
        let view = self.view.load();
        self.runtime.listing_progress(|toolbox| view.has_toolbox(toolbox))
    }

    /// Returns the servers of this profile with a listing from a previous run, as `toolbox/server`.
    pub(crate) fn stale_servers(&self, snapshot: &Snapshot) -> Vec<String> {
        let view = self.view.load();
        let listings = snapshot.listings().map(|(listing, _)| listing);
        let stale = listings.filter(|listing| listing.offer.is_stale && view.has_toolbox(&listing.toolbox));
        stale.map(|listing| format!("{}/{}", listing.toolbox, listing.server)).collect()
    }

    /// Returns `true` if a toolbox exists in this profile.
    pub(crate) fn has_toolbox(&self, toolbox: &ToolboxName) -> bool {
        self.view.load().has_toolbox(toolbox)
    }

    /// Calls `f` with the catalogue scope of this profile.
    pub(crate) fn with_scope<T>(&self, f: impl FnOnce(ToolboxScope<'_>) -> T) -> T {
        let view = self.view.load();
        match &view.toolboxes {
            None => f(ToolboxScope::All),
            Some(_) => f(ToolboxScope::Only(&|toolbox| view.has_toolbox(toolbox))),
        }
    }

    /// Returns the URI of a tool's view, if it has one.
    pub(crate) fn tool_view(&self, tool: &ToolId) -> Option<Arc<str>> {
        self.view.load().resource_index(&self.runtime.catalogue()).tool_view(tool)
    }

    /// Returns the tools of this profile, in order.
    pub(crate) fn tools(&self, snapshot: &Snapshot) -> Vec<Arc<CatalogueTool>> {
        let view = self.view.load();
        snapshot.tools().iter().filter(|tool| view.has_toolbox(&tool.id.toolbox)).cloned().collect()
    }

    /// Returns which listed tools carry an output schema. A stored output does not match its schema, and a
    /// client may reject it.
    pub(crate) fn output_schemas(&self) -> OutputSchemas {
        let settings = self.runtime.settings();
        let is_limited =
            settings.tool_response_max_bytes.is_some() || settings.tool_output.session_token_budget.is_some();
        if is_limited { OutputSchemas::Omit } else { OutputSchemas::OmitIfLimited }
    }
}
