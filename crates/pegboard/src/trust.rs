//! Consent to what project files start, before anything is started.
//!
//! Every command that starts servers or sends their requests needs a [`TrustedConfiguration`], and a [`TrustGate`]
//! is the only way to get one from files.

use std::path::{Path, PathBuf};

use pegboard::config::trust::{ActionKind, FileAction, FileOrigin, TrustError, TrustStore};
use pegboard::config::{Configuration, FileChange, Layers, load_layers};
use pegboard::telemetry::{Telemetry, write_stderr};
use pegboard::wiring::{self, App, AppOptions};

use crate::cli::format::{BOLD, PLAIN, columns, one_line};
use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{Echo, Prompter};
use crate::cli::{CliError, ExitReason, Globals, print};
use crate::commands::config_file::display_path;
use crate::paths;

/// Maximum number of actions in a prompt or an error, and maximum length of each.
const MAX_SHOWN: usize = 200;
pub(crate) const MAX_CHARACTERS: usize = 2_000;

/// A configuration that may be started: the user has agreed to what its project files do.
pub(crate) struct TrustedConfiguration(Configuration);

impl TrustedConfiguration {
    /// Wraps a configuration that comes from no file.
    pub(crate) fn built_in(configuration: Configuration) -> Self {
        Self(configuration)
    }

    /// Returns the configuration, to look at it.
    pub(crate) fn get(&self) -> &Configuration {
        &self.0
    }

    /// Returns the configuration, to adjust settings that start nothing.
    pub(crate) fn get_mut(&mut self) -> &mut Configuration {
        &mut self.0
    }

    /// Builds and starts everything in the configuration.
    pub(crate) async fn start(self, options: AppOptions, telemetry: &Telemetry) -> Result<App, CliError> {
        let started = Box::pin(wiring::start(self.0, options, telemetry)).await;
        started.map_err(|error| CliError::configuration(error.to_string()))
    }
}

/// Decides whether a configuration may be started.
#[derive(Clone, Debug)]
pub(crate) struct TrustGate {
    rule: TrustRule,
    /// Directory of the trusted files.
    state: Option<PathBuf>,
}

/// Treatment of project files that are not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrustRule {
    /// They are used, but not remembered.
    Use,
    /// The user is asked, if there is a terminal.
    Ask,
    /// They are rejected.
    Reject,
}

impl TrustGate {
    /// Returns the gate of a command.
    pub(crate) fn from_globals(globals: &Globals) -> Self {
        let rule = match (globals.trust, globals.no_input) {
            (true, _) => TrustRule::Use,
            (false, false) => TrustRule::Ask,
            (false, true) => TrustRule::Reject,
        };
        Self { rule, state: paths::state_dir(globals.state.as_deref()) }
    }

    /// Admits a configuration if its project files are trusted. Asks on a terminal.
    pub(crate) fn admit(&self, configuration: Configuration) -> Result<TrustedConfiguration, CliError> {
        self.require(&self.untrusted(&configuration.actions)?, &configuration.actions)?;
        Ok(TrustedConfiguration(configuration))
    }

    /// Asks for consent to actions that are not trusted. Trusts all actions of their files from then on. More
    /// than a prompt can show is rejected.
    pub(crate) fn require(&self, untrusted: &[&FileAction], all: &[FileAction]) -> Result<(), CliError> {
        if untrusted.is_empty() {
            return Ok(());
        }
        let Some(mut terminal) =
            Terminal::detect().filter(|_| self.rule == TrustRule::Ask && can_ask(untrusted))
        else {
            let lines = by_file(untrusted).into_iter().flat_map(|(_, actions)| action_lines(&actions));
            return Err(lines.fold(self.not_trusted(untrusted), CliError::detail));
        };
        if is_confirmed(untrusted, &mut terminal) {
            return self.remember(all);
        }
        // The actions were shown already.
        Err(self.not_trusted(untrusted))
    }

    /// Returns the actions of project files that the user has not agreed to.
    pub(crate) fn untrusted<'a>(&self, actions: &'a [FileAction]) -> Result<Vec<&'a FileAction>, TrustError> {
        let of_projects: Vec<&FileAction> =
            actions.iter().filter(|action| action.origin == FileOrigin::Project).collect();
        if of_projects.is_empty() || self.rule == TrustRule::Use {
            return Ok(Vec::new());
        }
        let store = self.store()?;
        Ok(of_projects.into_iter().filter(|action| !store.is_trusted(action)).collect())
    }

    /// Opens the record of trusted files.
    pub(crate) fn store(&self) -> Result<TrustStore, TrustError> {
        match &self.state {
            Some(state) => TrustStore::open(state, Some(paths::file_owner())),
            None => Ok(TrustStore::default()),
        }
    }

    /// Trusts the project files among these actions from now on, unless they are used only once. Waits for other
    /// processes that change the record.
    pub(crate) fn remember(&self, actions: &[FileAction]) -> Result<(), CliError> {
        if self.rule == TrustRule::Use {
            return Ok(());
        }
        let of_projects: Vec<FileAction> =
            actions.iter().filter(|action| action.origin == FileOrigin::Project).cloned().collect();
        match &self.state {
            Some(state) => Ok(TrustStore::trust_more(state, Some(paths::file_owner()), &of_projects)?),
            None => Ok(()),
        }
    }

    /// Error for files that are not trusted.
    pub(crate) fn not_trusted(&self, actions: &[&FileAction]) -> CliError {
        let files = by_file(actions);
        let store = self.store().unwrap_or_default();
        let is_known = |file: &Path| store.files().iter().any(|trusted| trusted.path == file);
        let names: Vec<String> = files.iter().map(|(file, _)| display_path(file)).collect();
        let message = match files.as_slice() {
            [(file, _)] if is_known(file) => format!("{} is not trusted: it has changed", names[0]),
            [_] => format!("{} is not trusted", names[0]),
            _ => format!("{} are not trusted", names.join(", ")),
        };
        let names = names.join(" ");
        let hint = format!("review it, then run: pegboard trust {names}; or add --trust to use it once");
        CliError::new(ExitReason::Configuration, "not_trusted", message).hint(hint)
    }

    /// Trusts what a command of the user has written to a file, except for the entries that `is_foreign` names.
    /// Other entries of the file are not trusted thereby.
    pub(crate) fn trust_edit(&self, change: &FileChange, is_foreign: impl Fn(&FileAction) -> bool) {
        let Some(state) = &self.state else { return };
        let mut new = new_actions(change);
        new.retain(|action| !is_foreign(action));
        if let Err(error) = TrustStore::trust_more(state, Some(paths::file_owner()), &new) {
            write_stderr(&format!("{}: not trusted yet: {error}", display_path(&change.path)));
        }
    }

    /// Returns the changed actions of a project file that were there before and that the user has not agreed to.
    /// `before` is the text of the file with all of its entries enabled.
    pub(crate) fn untrusted_edit(
        &self,
        change: &FileChange,
        before: &str,
    ) -> Result<Vec<FileAction>, TrustError> {
        let (store, before) = (self.store()?, actions_of(&change.path, before));
        let is_foreign = |action: &FileAction| {
            let mut old = before.iter().filter(|before| before.target == action.target).peekable();
            old.peek().is_some() && !old.all(|before| store.is_trusted(before)) && !store.is_trusted(action)
        };
        Ok(new_actions(change).into_iter().filter(is_foreign).collect())
    }

    /// Shows actions and asks for consent; `None` if the user cannot be asked.
    pub(crate) fn ask(&self, actions: &[&FileAction]) -> Option<bool> {
        match self.rule {
            TrustRule::Use => Some(true),
            TrustRule::Reject => None,
            TrustRule::Ask => {
                let mut terminal = Terminal::detect().filter(|_| can_ask(actions))?;
                Some(is_confirmed(actions, &mut terminal))
            }
        }
    }
}

/// Returns the actions of a changed file that it did not have before.
fn new_actions(change: &FileChange) -> Vec<FileAction> {
    let before = change.old.as_deref().map(|old| actions_of(&change.path, old)).unwrap_or_default();
    let mut new = actions_of(&change.path, &change.new);
    new.retain(|action| !before.iter().any(|before| before.digest == action.digest));
    new
}

/// Returns the actions of a text as if it were in a file.
fn actions_of(path: &Path, text: &str) -> Vec<FileAction> {
    let layers = Layers::new(path.parent().unwrap_or(Path::new(""))).text(path, text).assuming_secrets();
    load_layers(&layers, &paths::env_var).map(|configuration| configuration.actions).unwrap_or_default()
}

/// Shows the actions and asks for consent. Anything but yes is no.
fn is_confirmed(actions: &[&FileAction], terminal: &mut Terminal) -> bool {
    for (file, actions) in by_file(actions) {
        terminal.print(&format!("{BOLD}{} is not trusted yet.{PLAIN} It would use:", display_path(file)));
        print::unredacted_line(&table(&actions));
    }
    let answer = terminal.read_line("Trust it? [y/N] ", Echo::Shown).unwrap_or_default();
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Groups actions by file, in order.
pub(crate) fn by_file<'a>(actions: &[&'a FileAction]) -> Vec<(&'a Path, Vec<&'a FileAction>)> {
    let mut files: Vec<(&Path, Vec<&FileAction>)> = Vec::new();
    for action in actions {
        match files.iter_mut().find(|(file, _)| *file == action.file) {
            Some((_, actions)) => actions.push(action),
            None => files.push((&action.file, vec![action])),
        }
    }
    files
}

/// Returns `true` if a prompt can show these actions in full.
fn can_ask(actions: &[&FileAction]) -> bool {
    actions.len() <= MAX_SHOWN
        && actions.iter().all(|action| is_shown_in_full(&action.target.to_string(), &action.as_written))
}

/// Returns `true` if neither the name nor the summary of an action is too long to be shown.
pub(crate) fn is_shown_in_full(name: &str, summary: &str) -> bool {
    [name, summary].iter().all(|text| one_line(text, MAX_CHARACTERS) == one_line(text, usize::MAX))
}

/// Renders all actions as a table, in full.
pub(crate) fn table(actions: &[&FileAction]) -> String {
    let row = |action: &&FileAction| {
        let name = one_line(&action.target.to_string(), usize::MAX);
        vec![format!("  {name}"), one_line(&action.as_written, usize::MAX)]
    };
    columns(&actions.iter().map(row).collect::<Vec<_>>()).trim_end().to_owned()
}

/// Renders actions, one in each line, up to a limit.
pub(crate) fn action_lines(actions: &[&FileAction]) -> Vec<String> {
    let line = |action: &&FileAction| {
        let name = one_line(&action.target.to_string(), MAX_CHARACTERS);
        let summary = one_line(&action.summary, MAX_CHARACTERS);
        let verb = match action.kind {
            ActionKind::Program => "run",
            ActionKind::Request => "connect to",
            ActionKind::Composition => "offer",
            ActionKind::Access => "set",
        };
        format!("would {verb} {name}: {summary}")
    };
    let n_more = actions.len().saturating_sub(MAX_SHOWN);
    let left_out = (n_more > 0).then(|| format!("… and {n_more} more"));
    actions.iter().take(MAX_SHOWN).map(line).chain(left_out).collect()
}
