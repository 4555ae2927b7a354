//! What is told of an import: a table of all that was found, and what became of it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pegboard::telemetry::tell;
use serde_json::{Value, json};

use super::plan::{Fate, Item, Plan};
use super::sources::{Source, Sources, Unread};
use super::take_over::Told;
use crate::cli::words::{DIM, PLAIN, RED, columns, count};
use crate::cli::{Format, Globals, print, remark};
use crate::commands::own_file::{Changed, shown};

/// What became of all that was found, and of the files.
pub(crate) struct Report {
    pub(super) sources: Sources,
    pub(super) plan: Plan,
    /// Our file.
    pub(super) path: PathBuf,
    /// What became of it; nothing if there was nothing to write into it.
    pub(super) changed: Option<Changed>,
    /// Where keys stand in our file as they are.
    pub(super) bare_keys: Vec<String>,
    pub(super) taken: Vec<Told>,
}

impl Report {
    /// Tells it: the table as a result, and everything else beside it.
    pub(crate) fn tell(&self, globals: &Globals) {
        for unread in &self.sources.unread {
            tell(&format!("{} is left out: {}", shown(&unread.path), unread.why));
        }
        if !globals.quiet {
            for problem in self.plan.remarks(&self.sources) {
                tell(&problem.to_string());
            }
        }
        let format = globals.format_or(Format::Text);
        print::document(format, &self.document(), || self.text());
        if format == Format::Text {
            for text in self.remarks() {
                remark(globals, &text);
            }
        }
    }

    /// What people call the source of something.
    fn label(&self, item: &Item) -> String {
        self.sources.sources[item.source].label()
    }

    fn document(&self) -> Value {
        let Self { sources, plan, .. } = self;
        let of_source = |(index, source): (usize, &Source)| {
            let n_parts = plan.items.iter().filter(|item| item.source == index).count();
            json!({
                "source": source.label(),
                "file": source.survey.path,
                "dialect": source.survey.dialect.title(),
                "parts": n_parts,
            })
        };
        let of_item = |item: &Item| {
            let (status, name, reason) = match &item.fate {
                Fate::New(name) => ("new", Some(name), None),
                Fate::Same(name) => ("same", Some(name), None),
                Fate::There(name) => ("there", Some(name), None),
                Fate::LeftOut(reason) => ("left_out", None, Some(reason)),
            };
            let part = &item.part;
            json!({
                "source": self.label(item),
                "section": part.section,
                "toolbox": part.toolbox.as_deref().unwrap_or("default"),
                "name": part.name,
                "transport": part.transport,
                "status": status,
                "as": name,
                "reason": reason,
                "enabled": !part.is_off,
                "obstacle": part.obstacle,
            })
        };
        let of_unread = |unread: &Unread| json!({"file": unread.path, "reason": unread.why});
        let of_taken = |told: &Told| json!({"client": told.client.name(), "file": told.path, "replaced": told.names, "diff": told.diff});
        let changed = self.changed.as_ref();
        json!({
            "file": self.path,
            "changed": changed.is_some_and(|changed| changed.has_effect && changed.diff.is_none()),
            "diff": changed.and_then(|changed| changed.diff.as_ref()),
            "sources": sources.sources.iter().enumerate().map(of_source).collect::<Value>(),
            "parts": plan.items.iter().map(of_item).collect::<Value>(),
            "unread": sources.unread.iter().map(of_unread).collect::<Value>(),
            "takenOver": self.taken.iter().map(of_taken).collect::<Value>(),
        })
    }

    fn text(&self) -> String {
        if self.plan.items.is_empty() {
            return "No servers were found".to_owned();
        }
        let head = ["SOURCE", "NAME", "KIND"].map(|title| format!("{DIM}{title}{PLAIN}"));
        let rows = self.plan.items.iter().map(|item| {
            let part = &item.part;
            let name = match &part.toolbox {
                Some(toolbox) => format!("{toolbox}/{}", part.name),
                None => part.name.clone(),
            };
            vec![self.label(item), name, part.transport.to_owned(), note(item)]
        });
        let table = columns(&std::iter::once(head.to_vec()).chain(rows).collect::<Vec<_>>());
        let mut text = format!("{table}{}", self.summary());
        let own = self.changed.as_ref().and_then(|changed| changed.diff.as_deref());
        let diffs = own.into_iter().chain(self.taken.iter().filter_map(|told| told.diff.as_deref()));
        for diff in diffs.filter(|diff| !diff.is_empty()) {
            text.push_str("\n\n");
            text.push_str(diff.trim_end());
        }
        text
    }

    /// How much there was, and where it went: `4 sources: 5 new, 2 found twice → pegboard.yaml`.
    fn summary(&self) -> String {
        let n_of = |is_it: fn(&Fate) -> bool| self.plan.items.iter().filter(|item| is_it(&item.fate)).count();
        let kinds = [
            (n_of(|fate| matches!(fate, Fate::New(_))), "new"),
            (n_of(|fate| matches!(fate, Fate::Same(_))), "found twice"),
            (n_of(|fate| matches!(fate, Fate::There(_))), "there already"),
            (n_of(|fate| matches!(fate, Fate::LeftOut(_))), "left out"),
        ];
        let told: Vec<String> = kinds
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        let n_sources = count(self.sources.sources.len() as u64, "source");
        let mut summary = format!("{n_sources}: {}", told.join(", "));
        if let Some(changed) = self.changed.as_ref().filter(|changed| changed.has_effect) {
            summary = format!("{summary} → {}", shown(&changed.path));
        }
        for told in self.taken.iter().filter(|told| told.diff.is_none()) {
            let replaced = told.names.join(", ");
            summary = format!(
                "{summary}\n{} uses us instead of {replaced}: {}",
                told.client.title(),
                shown(&told.path)
            );
        }
        summary
    }

    /// What else is worth saying.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let is_written =
            self.changed.as_ref().is_some_and(|changed| changed.has_effect && changed.diff.is_none());
        if !self.bare_keys.is_empty() {
            let place = self.changed.as_ref().map(|changed| shown(&changed.path)).unwrap_or_default();
            remarks.push(format!(
                "{place} has keys in it as they are: {}. Keep it out of version control, or put ${{NAME}} in their place and set the variable",
                self.bare_keys.join(", ")
            ));
        }
        for source in self.sources.sources.iter().filter(|source| !source.survey.settings.is_empty()) {
            let settings = source.survey.settings.join(", ");
            remarks
                .push(format!("{} also sets {settings}, which was left there", shown(&source.survey.path)));
        }
        let undone: BTreeSet<&str> =
            self.taken.iter().filter(|told| told.diff.is_none()).map(|told| told.client.name()).collect();
        if !undone.is_empty() {
            let names = undone.into_iter().collect::<Vec<_>>().join(" ");
            remarks.push(format!("To undo it: pegboard restore --all {names}"));
        }
        if self.plan.items.is_empty() {
            remarks.push("Add one: pegboard add NAME URL   or   pegboard add NAME -- COMMAND".to_owned());
        } else if is_written && self.taken.is_empty() {
            remarks
                .push("Next: pegboard ls   or   pegboard connect CLIENT, to have a client use it".to_owned());
        }
        remarks
    }
}

/// What became of one, in a few words.
fn note(item: &Item) -> String {
    let part = &item.part;
    let mut words = match &item.fate {
        Fate::New(name) if *name == part.name => vec!["new".to_owned()],
        Fate::New(name) => vec![format!("new, as {name}")],
        Fate::Same(name) => vec![format!("{DIM}the same as {name}{PLAIN}")],
        Fate::There(name) if *name == part.name => vec![format!("{DIM}there already{PLAIN}")],
        Fate::There(name) => vec![format!("{DIM}there already, as {name}{PLAIN}")],
        Fate::LeftOut(reason) => vec![format!("{RED}left out{PLAIN}: {reason}")],
    };
    if part.is_off {
        words.push("off".to_owned());
    }
    if let (Some(obstacle), Fate::New(_)) = (&part.obstacle, &item.fate) {
        words.push(obstacle.clone());
    }
    words.join(", ")
}
