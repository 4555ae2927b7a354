//! Report on an import: a table of all entries and their outcomes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pegboard::config::ConfigurationError;
use pegboard::config::import::{Import, ImportItem, ImportOutcome, ImportSource, Takeover};
use pegboard::config::trust::ActionTarget;
use pegboard::telemetry::write_stderr;
use serde_json::{Value, json};

use crate::cli::format::{DIM, PLAIN, RED, columns, plural};
use crate::cli::{Globals, OutputFormat, format, notice, print};
use crate::commands::config_file::{EditedFile, display_path};

/// Report on an import.
pub(crate) struct ImportReport {
    pub(super) import: Import<'static>,
    /// Edit of Pegboard's file; `None` if there was nothing to add.
    pub(super) edited: Option<EditedFile>,
    /// Clients' files with Pegboard in place of their servers.
    pub(super) taken: Vec<Takeover>,
    /// Files of the project that were not imported, because the others are files of the user.
    pub(super) left_out: Vec<PathBuf>,
    /// Treatment of servers that may work in their client only.
    pub(super) stays: ClientOnlyServers,
    /// New entries of project files that are not trusted.
    pub(super) untrusted: Vec<ActionTarget>,
    pub(super) is_dry_run: bool,
}

/// Treatment of servers that may work in their client only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientOnlyServers {
    /// Imported like others.
    Imported,
    /// They stay in the client's file.
    Stay,
}

impl ImportReport {
    /// Prints the report: the table as the result, and notes to standard error.
    pub(crate) fn print(&self, globals: &Globals) {
        for (path, error) in &self.import.sources.unread {
            write_stderr(&format!("{} was skipped: {error}", display_path(path)));
        }
        if !globals.quiet {
            for problem in self.import.remarks() {
                write_stderr(&problem.to_string());
            }
        }
        let format = globals.format_or(OutputFormat::Text);
        print::document(format, &self.document(), || self.text());
        if format == OutputFormat::Text {
            for text in self.remarks() {
                notice(globals, &text);
            }
        }
    }

    /// Label of an entry's source.
    fn label(&self, item: &ImportItem) -> String {
        label(&self.import.sources.sources[item.source])
    }

    /// Diff of a client's file, in a dry run.
    fn diff_of(&self, takeover: &Takeover) -> Option<String> {
        self.is_dry_run.then(|| takeover.change.diff(&display_path(&takeover.change.path)))
    }

    /// Reason why a server stays in its client's file.
    fn stays_reason(&self, item: &ImportItem) -> Option<String> {
        let has_client = self.import.sources.sources[item.source].client.is_some();
        let may_stay = has_client && !matches!(item.outcome, ImportOutcome::Skipped(_));
        match self.stays {
            ClientOnlyServers::Stay if may_stay => item.client_only_reason(),
            ClientOnlyServers::Stay | ClientOnlyServers::Imported => None,
        }
    }

    /// Clients' files that were written.
    fn written_clients(&self) -> &[Takeover] {
        if self.is_dry_run { &[] } else { &self.taken }
    }

    fn document(&self) -> Value {
        let Import { file, sources, items } = &self.import;
        let of_source = |(index, source): (usize, &ImportSource)| {
            let n_parts = items.iter().filter(|item| item.source == index).count();
            json!({
                "source": label(source),
                "file": source.inventory.path,
                "dialect": source.inventory.dialect.title(),
                "parts": n_parts,
            })
        };
        let of_item = |item: &ImportItem| {
            let (status, name, reason) = match &item.outcome {
                ImportOutcome::New(name) => ("new", Some(name), None),
                ImportOutcome::Duplicate(name) => ("duplicate", Some(name), None),
                ImportOutcome::AlreadyPresent(name) => ("present", Some(name), None),
                ImportOutcome::Skipped(reason) => ("skipped", None, Some(reason)),
            };
            let part = &item.part;
            json!({
                "source": self.label(item),
                "section": part.section.key(),
                "toolbox": item.toolbox.as_deref().unwrap_or("default"),
                "name": part.name,
                "transport": part.transport,
                "status": status,
                "as": name,
                "reason": reason,
                "enabled": !part.is_disabled,
                "obstacle": part.unusable_reason,
                "stays": self.stays_reason(item),
            })
        };
        let of_unread = |(path, error): &(PathBuf, ConfigurationError)| json!({"file": path, "reason": error.to_string()});
        let of_taken = |takeover: &Takeover| json!({"client": takeover.client.name(), "file": takeover.change.path, "replaced": takeover.names, "diff": self.diff_of(takeover)});
        json!({
            "file": file.path,
            "changed": self.edited.as_ref().is_some_and(EditedFile::is_written),
            "diff": self.edited.as_ref().and_then(|edited| edited.diff.as_ref()),
            "sources": sources.sources.iter().enumerate().map(of_source).collect::<Value>(),
            "parts": items.iter().map(of_item).collect::<Value>(),
            "unreadable": sources.unread.iter().map(of_unread).collect::<Value>(),
            "untrusted": self.untrusted.iter().map(|target| json!(target.to_string())).collect::<Value>(),
            "takenOver": self.taken.iter().map(of_taken).collect::<Value>(),
        })
    }

    fn text(&self) -> String {
        if self.import.items.is_empty() {
            return "No servers found".to_owned();
        }
        let head = ["SOURCE", "NAME", "KIND"].map(|title| format!("{DIM}{title}{PLAIN}"));
        let rows = self.import.items.iter().map(|item| {
            let part = &item.part;
            let name = match &part.toolbox {
                Some(toolbox) => format!("{toolbox}/{}", part.name),
                None => part.name.clone(),
            };
            vec![self.label(item), name, part.transport.to_owned(), self.describe_outcome(item)]
        });
        let table = columns(&std::iter::once(head.to_vec()).chain(rows).collect::<Vec<_>>());
        let mut text = format!("{table}{}", self.summary());
        let own = self.edited.as_ref().and_then(|edited| edited.diff.clone());
        let diffs = own.into_iter().chain(self.taken.iter().filter_map(|takeover| self.diff_of(takeover)));
        for diff in diffs.filter(|diff| !diff.is_empty()) {
            text.push_str("\n\n");
            text.push_str(&format::diff(diff.trim_end()));
        }
        text
    }

    /// Renders the totals: `4 sources: 5 new, 2 duplicate → pegboard.yaml`.
    fn summary(&self) -> String {
        let n_of = |is_it: fn(&ImportOutcome) -> bool| {
            self.import.items.iter().filter(|item| is_it(&item.outcome)).count()
        };
        let kinds = [
            (n_of(|outcome| matches!(outcome, ImportOutcome::New(_))), "new"),
            (n_of(|outcome| matches!(outcome, ImportOutcome::Duplicate(_))), "duplicate"),
            (n_of(|outcome| matches!(outcome, ImportOutcome::AlreadyPresent(_))), "already present"),
            (n_of(|outcome| matches!(outcome, ImportOutcome::Skipped(_))), "skipped"),
        ];
        let counts: Vec<String> = kinds
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        let n_sources = plural(self.import.sources.sources.len() as u64, "source");
        let mut summary = format!("{n_sources}: {}", counts.join(", "));
        if let Some(edited) = self.edited.as_ref().filter(|edited| edited.change.has_effect()) {
            summary = format!("{summary} → {}", edited.place());
        }
        for takeover in self.written_clients() {
            let replaced = takeover.names.join(", ");
            summary = format!(
                "{summary}\n{} now uses Pegboard instead of {replaced}: {}",
                takeover.client.title(),
                display_path(&takeover.change.path)
            );
        }
        summary
    }

    /// Notes printed after the table.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let plaintext_keys = self.import.plaintext_keys();
        let has_them = self.edited.as_ref().is_some_and(|edited| !edited.change.added_keys().is_empty());
        if has_them && !plaintext_keys.is_empty() {
            let place = self.edited.as_ref().map(EditedFile::place).unwrap_or_default();
            remarks.push(format!(
                "{place} contains plaintext keys: {}. Keep it out of version control, or store each with pegboard secret set NAME and write ${{keyring:NAME}}; import --store-keys does both",
                plaintext_keys.join(", ")
            ));
        }
        for source in
            self.import.sources.sources.iter().filter(|source| !source.inventory.settings.is_empty())
        {
            let settings = source.inventory.settings.join(", ");
            remarks.push(format!(
                "{} also sets {settings}, which was not imported",
                display_path(&source.inventory.path)
            ));
        }
        if let (false, Some(edited)) = (self.untrusted.is_empty(), &self.edited) {
            let names: Vec<String> = self.untrusted.iter().map(ActionTarget::to_string).collect();
            remarks.push(format!(
                "Not trusted yet, since files of this project define them: {}. Review them, then run: pegboard trust {}",
                names.join(", "),
                edited.place()
            ));
        }
        let staying: Vec<&str> = self
            .import
            .items
            .iter()
            .filter(|item| self.stays_reason(item).is_some())
            .map(|item| item.part.name.as_str())
            .collect();
        if !staying.is_empty() {
            remarks.push(format!(
                "Not taken over: {}. Set what they need and run the command again, or add --force",
                staying.join(", ")
            ));
        }
        if !self.left_out.is_empty() {
            let paths: Vec<String> = self.left_out.iter().map(|path| display_path(path)).collect();
            remarks.push(format!(
                "Not imported: {}, since it belongs to this project. Import it into the project's file: pegboard import {} --into pegboard.yaml",
                paths.join(", "),
                paths.join(" ")
            ));
        }
        let undone: BTreeSet<&str> =
            self.written_clients().iter().map(|takeover| takeover.client.name()).collect();
        if !undone.is_empty() {
            let names = undone.into_iter().collect::<Vec<_>>().join(" ");
            remarks.push(format!("Undo with: pegboard restore --all {names}"));
        }
        if self.import.items.is_empty() {
            remarks.push("Add one: pegboard add NAME URL   or   pegboard add NAME -- COMMAND".to_owned());
        } else if self.taken.is_empty() && self.edited.as_ref().is_some_and(EditedFile::is_written) {
            remarks.push("Next: pegboard ls   or   pegboard connect CLIENT".to_owned());
        }
        remarks
    }

    /// Short description of an entry's outcome.
    fn describe_outcome(&self, item: &ImportItem) -> String {
        let part = &item.part;
        let mut words = match &item.outcome {
            ImportOutcome::New(name) if *name == part.name => vec!["new".to_owned()],
            ImportOutcome::New(name) => vec![format!("new as {name}")],
            ImportOutcome::Duplicate(name) => vec![format!("{DIM}same as {name}{PLAIN}")],
            ImportOutcome::AlreadyPresent(name) if *name == part.name => {
                vec![format!("{DIM}already present{PLAIN}")]
            }
            ImportOutcome::AlreadyPresent(name) => vec![format!("{DIM}already present as {name}{PLAIN}")],
            ImportOutcome::Skipped(reason) => vec![format!("{RED}skipped{PLAIN}: {reason}")],
        };
        if part.is_disabled {
            words.push("disabled".to_owned());
        }
        if let Some(reason) =
            part.unusable_reason.as_ref().filter(|_| !matches!(item.outcome, ImportOutcome::Skipped(_)))
        {
            words.push(reason.clone());
        }
        if let Some(reason) = self.stays_reason(item) {
            if part.unusable_reason.is_none() {
                words.push(reason);
            }
            words.push(format!("stays in {}", self.label(item)));
        }
        words.join(", ")
    }
}

/// Label of a source: its client, or its path.
fn label(source: &ImportSource) -> String {
    source.client.map_or_else(|| display_path(&source.inventory.path), |client| client.name().to_owned())
}
