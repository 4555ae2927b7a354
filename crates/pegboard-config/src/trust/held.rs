//! Changes of a running configuration that wait for approval.
//!
//! A tool that can write files must not become one that starts programs or sends secrets elsewhere. When files change
//! by themselves, new and changed programs are therefore held back, and so are headers and credentials for another
//! origin, and everything in project files that is not trusted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pegboard_core::fingerprint::Fingerprint;
use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::mcp::{McpTarget, ServerProgram};
use pegboard_core::settings::telemetry::TelemetrySettings;

use super::origins::Origins;
use super::{ActionTarget, FileAction, FileOrigin};
use crate::configuration::{Configuration, ModelProviderEntry, RestEntry, ServerEntry};
use crate::section::EntrySection;

/// The entries that a user has approved: those of a configuration that was loaded on their behalf.
#[derive(Default)]
pub struct ApprovedConfiguration {
    servers: BTreeMap<ActionTarget, ServerEntry>,
    rest_tools: BTreeMap<ActionTarget, RestEntry>,
    providers: BTreeMap<ActionTarget, ModelProviderEntry>,
    settings: RuntimeSettings,
    gateway: GatewaySettings,
    telemetry: TelemetrySettings,
    actions: Vec<FileAction>,
}

/// A change that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldChange {
    /// The changed entry.
    pub target: ActionTarget,
    /// Reason why it waits.
    pub reason: HeldReason,
    /// The command line or URL, without secrets.
    pub summary: String,
    /// The same in full, for the user who decides.
    pub as_written: String,
    /// File that has the change, if it is in one of the files themselves.
    pub file: Option<PathBuf>,
    /// Digests of the entry in its files. The summary leaves out secrets, and two changes must not be taken for one.
    digests: Vec<String>,
    /// The program, if it is one: its environment may come from elsewhere.
    program: Option<ServerProgram>,
    /// `true` if a project file has the change, and the settings of its tools wait, too.
    is_of_project: bool,
}

impl HeldChange {
    /// Returns `true` if the change includes this action.
    pub fn includes(&self, action: &FileAction) -> bool {
        is_same_entry(&self.target, &action.target)
    }

    /// Returns a digest of changes, by which they are approved. It covers what their summaries leave out.
    pub fn digest_of(changes: &[Self]) -> String {
        let mut fingerprint = Fingerprint::default();
        for Self { target, reason, summary, as_written: _, file: _, digests, program, is_of_project: _ } in
            changes
        {
            fingerprint.add_all([target.to_string(), reason.to_string(), summary.clone()]);
            fingerprint.add_all(digests);
            let Some(ServerProgram { command, args, env, cwd }) = program else { continue };
            fingerprint.add(command);
            fingerprint.add_all(args);
            fingerprint.add_all(env.iter().flat_map(|(name, value)| [name.as_str(), value.reveal()]));
            fingerprint.add_all(cwd.iter().map(|folder| folder.as_os_str().as_encoded_bytes()));
        }
        fingerprint.finish()
    }
}

/// Reason why a change waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldReason {
    /// The entry is new.
    New,
    /// These parts of the entry changed.
    Changed(Vec<&'static str>),
}

impl std::fmt::Display for HeldReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::New => f.write_str("new"),
            Self::Changed(parts) => write!(f, "changed {}", parts.join(", ")),
        }
    }
}

impl ApprovedConfiguration {
    /// Approves everything in a configuration.
    pub fn new(configuration: &Configuration) -> Self {
        let mut approved = Self {
            settings: configuration.settings.clone(),
            gateway: configuration.gateway.clone(),
            telemetry: configuration.telemetry.clone(),
            actions: configuration.actions.clone(),
            ..Self::default()
        };
        for (toolbox, described) in &configuration.toolboxes {
            for (name, entry) in &described.servers {
                approved.servers.insert(server_target(toolbox.as_str(), name.as_str()), entry.clone());
            }
            for (name, entry) in &described.rest_tools {
                approved.rest_tools.insert(rest_target(toolbox.as_str(), name.as_str()), entry.clone());
            }
        }
        for (name, entry) in &configuration.providers {
            approved.providers.insert(provider_target(name.as_str()), entry.clone());
        }
        approved
    }

    /// Returns the changes in a configuration that need approval. `is_trusted` tells which actions the user has
    /// allowed elsewhere.
    pub fn review(
        &self,
        configuration: &Configuration,
        is_trusted: &dyn Fn(&FileAction) -> bool,
    ) -> Vec<HeldChange> {
        let review = ChangeReview { before: &self.actions, now: &configuration.actions, is_trusted };
        let mut held = Vec::new();
        for (toolbox, described) in &configuration.toolboxes {
            for (name, entry) in &described.servers {
                let target = server_target(toolbox.as_str(), name.as_str());
                let reason = review.server(&target, self.servers.get(&target), entry);
                held.extend(reason.map(|reason| HeldChange {
                    program: running_program(entry).cloned(),
                    ..review.held(target, reason)
                }));
            }
            for (name, entry) in &described.rest_tools {
                let target = rest_target(toolbox.as_str(), name.as_str());
                let is_on = !matches!(entry, RestEntry::Usable { is_enabled: false, .. });
                let old = self.rest_tools.get(&target);
                let reason = review.request(&target, old.map(Origins::of_rest), &Origins::of_rest(entry));
                held.extend(reason.filter(|_| is_on).map(|reason| review.held(target, reason)));
            }
        }
        for (name, entry) in &configuration.providers {
            let target = provider_target(name.as_str());
            let old = self.providers.get(&target);
            let reason = review.request(&target, old.map(Origins::of_model), &Origins::of_model(entry));
            held.extend(reason.map(|reason| review.held(target, reason)));
        }
        // Chains and agents use nothing but what is there.
        for target in [ActionTarget::Telemetry, ActionTarget::Access] {
            let is_there = self.actions.iter().any(|action| action.target == target);
            let reason = if is_there { HeldReason::Changed(vec!["settings"]) } else { HeldReason::New };
            held.extend(review.is_open(&target).then(|| review.held(target, reason)));
        }
        held
    }

    /// Takes back changes: a changed entry keeps its old connection, a new one is left out. While settings of access
    /// wait, so do all settings of the gateway.
    pub fn take_back(&self, configuration: &mut Configuration, held: &[HeldChange]) {
        let is_held = |target: &ActionTarget| held.iter().any(|change| change.target == *target);
        let is_of_project = |target: &ActionTarget| {
            held.iter().any(|change| change.target == *target && change.is_of_project)
        };
        if is_held(&ActionTarget::Telemetry) {
            configuration.telemetry.clone_from(&self.telemetry);
        }
        if is_held(&ActionTarget::Access) {
            configuration.settings.clone_from(&self.settings);
            configuration.gateway.clone_from(&self.gateway);
        }
        for (toolbox, described) in &mut configuration.toolboxes {
            described.servers.retain(|name, entry| {
                let target = server_target(toolbox.as_str(), name.as_str());
                let old = || {
                    let old = self.servers.get(&target)?.clone();
                    Some(if is_of_project(&target) { old } else { with_tools_of(old, entry) })
                };
                !is_held(&target) || restore(old(), entry)
            });
            described.rest_tools.retain(|name, entry| {
                let target = rest_target(toolbox.as_str(), name.as_str());
                !is_held(&target) || restore(self.rest_tools.get(&target).cloned(), entry)
            });
        }
        configuration.providers.retain(|name, entry| {
            let target = provider_target(name.as_str());
            !is_held(&target) || restore(self.providers.get(&target).cloned(), entry)
        });
    }

    /// Returns the approved entries after a configuration was applied without the changes that are held.
    #[must_use]
    pub fn after(&self, configuration: &Configuration, held: &[HeldChange]) -> Self {
        let is_held = |action: &&FileAction| held.iter().any(|change| change.includes(action));
        let mut approved = Self::new(configuration);
        approved.actions.retain(|action| !is_held(&action));
        approved.actions.extend(self.actions.iter().filter(is_held).cloned());
        approved
    }
}

/// Replaces an entry by its old form. Returns `false` if there is none.
fn restore<T>(old: Option<T>, entry: &mut T) -> bool {
    old.map(|old| *entry = old).is_some()
}

fn server_target(toolbox: &str, name: &str) -> ActionTarget {
    ActionTarget::entry(toolbox, EntrySection::Servers, name)
}

fn rest_target(toolbox: &str, name: &str) -> ActionTarget {
    ActionTarget::entry(toolbox, EntrySection::RestTools, name)
}

fn provider_target(name: &str) -> ActionTarget {
    ActionTarget::ModelProvider(name.to_owned())
}

/// Compares the actions of two configurations.
struct ChangeReview<'c> {
    before: &'c [FileAction],
    now: &'c [FileAction],
    is_trusted: &'c dyn Fn(&FileAction) -> bool,
}

impl ChangeReview<'_> {
    /// Returns the reason to hold a server, if there is one.
    fn server(
        &self,
        target: &ActionTarget,
        old: Option<&ServerEntry>,
        new: &ServerEntry,
    ) -> Option<HeldReason> {
        match new {
            ServerEntry::Mcp { connection, .. } if !connection.is_enabled => None,
            ServerEntry::Mcp { connection, .. } => match &connection.target {
                McpTarget::Program(program) => {
                    let reason = match old.map(running_program) {
                        None => HeldReason::New,
                        Some(None) => HeldReason::Changed(vec!["transport"]),
                        // The programs are the same, but not the tools that can be called.
                        Some(Some(old)) if old == program => {
                            return self.is_open(target).then(|| HeldReason::Changed(vec!["tools"]));
                        }
                        Some(Some(old)) => HeldReason::Changed(changed_parts(old, program)),
                    };
                    (!self.is_explained(target)).then_some(reason)
                }
                McpTarget::WebSocket(_) | McpTarget::Http(_) | McpTarget::Sse(_) | McpTarget::Embedded => {
                    self.request(target, old.map(Origins::of_server), &Origins::of_server(new))
                }
            },
            ServerEntry::OpenApi { service, .. } if service.enabled == Some(false) => None,
            ServerEntry::OpenApi { .. } => {
                self.request(target, old.map(Origins::of_server), &Origins::of_server(new))
            }
            ServerEntry::Unusable(_) => None,
        }
    }

    /// Returns the reason to hold an entry that sends requests: a change in a project file, or secrets that another
    /// origin would receive.
    fn request(&self, target: &ActionTarget, old: Option<Origins>, new: &Origins) -> Option<HeldReason> {
        let is_there = old.is_some();
        if self.is_open(target) {
            return Some(if is_there {
                HeldReason::Changed(vec!["URL or headers"])
            } else {
                HeldReason::New
            });
        }
        let sends_secrets = self.now_of(target).any(|action| action.sends_secrets);
        let is_elsewhere = !old.unwrap_or_default().include(new);
        if !sends_secrets || !is_elsewhere || self.is_explained(target) {
            return None;
        }
        Some(if is_there { HeldReason::Changed(vec!["origin"]) } else { HeldReason::New })
    }

    /// Returns `true` if a project file has a change of an entry that the user has not agreed to.
    fn is_open(&self, target: &ActionTarget) -> bool {
        self.now_of(target).any(|action| {
            action.origin == FileOrigin::Project && !self.is_known(action) && !(self.is_trusted)(action)
        })
    }

    /// Returns `true` if the user has allowed the new form of an entry. A change that is in no file, such as
    /// that of an env file or a secret, was never allowed.
    fn is_explained(&self, target: &ActionTarget) -> bool {
        let mut new = self.now_of(target).filter(|action| !self.is_known(action)).peekable();
        new.peek().is_some() && new.all(|action| (self.is_trusted)(action))
    }

    fn is_known(&self, action: &FileAction) -> bool {
        self.before.iter().any(|before| before.file == action.file && before.digest == action.digest)
    }

    /// Actions of an entry. Both kinds of servers share their names.
    fn now_of<'s>(&'s self, target: &'s ActionTarget) -> impl Iterator<Item = &'s FileAction> {
        self.now.iter().filter(move |action| is_same_entry(&action.target, target))
    }

    fn held(&self, target: ActionTarget, reason: HeldReason) -> HeldChange {
        let actions: Vec<&FileAction> = self.now_of(&target).collect();
        let digests = actions.iter().map(|action| action.digest.clone()).collect();
        let (summary, file) = match actions.last() {
            Some(action) => (action.summary.clone(), Some(action.file.clone())),
            None => (String::new(), None),
        };
        let new: Vec<&str> = actions
            .iter()
            .filter(|action| !self.is_known(action))
            .map(|action| action.as_written.as_str())
            .collect();
        // A change that is in no file has the form of before.
        let as_written = match (new.is_empty(), actions.last()) {
            (true, Some(action)) => action.as_written.clone(),
            _ => new.join("; "),
        };
        let is_of_project = self.is_open(&target);
        HeldChange { target, reason, summary, as_written, file, digests, program: None, is_of_project }
    }
}

/// Returns `true` if two targets are the same entry. Services are listed with the servers of their toolbox.
fn is_same_entry(one: &ActionTarget, other: &ActionTarget) -> bool {
    let section = |section: EntrySection| match section {
        EntrySection::OpenApiServices => EntrySection::Servers,
        section => section,
    };
    match (one, other) {
        (
            ActionTarget::Entry { toolbox, section: in_section, name },
            ActionTarget::Entry { toolbox: other_toolbox, section: other_section, name: other_name },
        ) => {
            toolbox == other_toolbox && name == other_name && section(*in_section) == section(*other_section)
        }
        (one, other) => one == other,
    }
}

/// Returns the program of a server that is enabled.
fn running_program(entry: &ServerEntry) -> Option<&ServerProgram> {
    match entry {
        ServerEntry::Mcp { connection, .. } if connection.is_enabled => match &connection.target {
            McpTarget::Program(program) => Some(program),
            McpTarget::WebSocket(_) | McpTarget::Http(_) | McpTarget::Sse(_) | McpTarget::Embedded => None,
        },
        ServerEntry::Mcp { .. } | ServerEntry::OpenApi { .. } | ServerEntry::Unusable(_) => None,
    }
}

fn changed_parts(old: &ServerProgram, new: &ServerProgram) -> Vec<&'static str> {
    let parts = [
        (old.command != new.command, "command"),
        (old.args != new.args, "arguments"),
        (old.env != new.env, "environment"),
        (old.cwd != new.cwd, "folder"),
    ];
    parts.into_iter().filter(|(is_other, _)| *is_other).map(|(_, part)| part).collect()
}

/// Returns the old connection with the new settings of its tools.
fn with_tools_of(old: ServerEntry, new: &ServerEntry) -> ServerEntry {
    match (old, new) {
        (ServerEntry::Mcp { connection, .. }, ServerEntry::Mcp { tools, .. }) => {
            ServerEntry::Mcp { connection, tools: tools.clone() }
        }
        (old, _) => old,
    }
}
