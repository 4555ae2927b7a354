//! `pegboard enable` and `pegboard disable`: switch servers, services and single tools on and off.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::trust::FileAction;
use pegboard::config::{ConfigFile, EntrySection};
use pegboard::runtime::filter::ToolFilter;
use pegboard::telemetry::write_stderr;
use serde_json::{Map, Value, json};

use super::config_file::{ConfigEntry, EditTarget, EditedFile, config_entries, display_path};
use crate::cli::{CliError, Globals};
use crate::trust::{TrustGate, action_lines};

/// Arguments of `pegboard enable` and `pegboard disable`.
#[derive(Args)]
pub(crate) struct EnableArgs {
    /// Entry to switch: SERVER, TOOLBOX/SERVER or SERVER/TOOL
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    target: EditTarget,
}

/// New state of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwitchState {
    On,
    Off,
}

impl EnableArgs {
    pub(crate) fn run(mut self, globals: &Globals, state: SwitchState) -> Result<ExitCode, CliError> {
        self.target = self.target.of_entries(globals, &self.names);
        let mut file = self.target.open(globals)?;
        for name in &self.names {
            let (part, tool) = self.target.find_entry(globals, &file, name)?;
            match tool {
                None => switch(&mut file, &part, state)?,
                Some(tool) if part.section == EntrySection::Servers => {
                    switch_tool(&mut file, &part, tool, state)?;
                }
                Some(_) => {
                    let what = part.section.noun();
                    return Err(CliError::usage(format!(
                        "cannot enable or disable single tools of a {what}"
                    ))
                    .hint("set include or exclude in the file"));
                }
            }
        }
        let edited = self.target.check(&file)?;
        if edited.diff.is_none() {
            self.write(globals, &edited)?;
        }
        let verb = match (state, edited.change.has_effect()) {
            (SwitchState::On, true) => "Enabled",
            (SwitchState::Off, true) => "Disabled",
            (SwitchState::On, false) => "Already enabled",
            (SwitchState::Off, false) => "Already disabled",
        };
        let text = format!("{verb} {}: {}", self.names.join(", "), edited.place());
        let document = Map::from_iter([
            ("names".to_owned(), json!(self.names)),
            ("enabled".to_owned(), json!(state == SwitchState::On)),
        ]);
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        edited.report(globals, if state == SwitchState::On { &names } else { &[] }, document, &text);
        Ok(ExitCode::SUCCESS)
    }
}

impl EnableArgs {
    /// Writes the file. An entry that was in a project file before is trusted only if it was, or if the user agrees:
    /// switching it, or one of its tools, is no consent to what it runs.
    fn write(&self, globals: &Globals, edited: &EditedFile) -> Result<(), CliError> {
        if !self.target.is_project(globals) {
            return edited.write(globals, |_| false);
        }
        let mut before = self.target.open(globals)?;
        for entry in config_entries(before.document.value()) {
            for key in ["enabled", "disabled"] {
                let switch = entry.path.clone().key(key);
                if before.document.get(&switch).is_some() {
                    before.document.remove(&switch)?;
                }
            }
        }
        let gate = TrustGate::from_globals(globals);
        let foreign = gate.untrusted_edit(&edited.change, &before.change().new)?;
        let shown: Vec<&FileAction> = foreign.iter().collect();
        let consent = if shown.is_empty() { Some(true) } else { gate.ask(&shown) };
        match consent {
            Some(true) => edited.write(globals, |_| false),
            Some(false) => Err(gate.not_trusted(&shown)),
            None => {
                edited.write(globals, |action| foreign.contains(action))?;
                let place = edited.place();
                for line in action_lines(&shown) {
                    write_stderr(&format!("{place} {line}"));
                }
                write_stderr(&format!("Not trusted yet: review it, then run pegboard trust {place}"));
                Ok(())
            }
        }
    }
}

/// Switches a server or service, with the key that its entry already uses.
fn switch(file: &mut ConfigFile<'_>, part: &ConfigEntry, state: SwitchState) -> Result<(), CliError> {
    match part.section {
        EntrySection::Servers | EntrySection::OpenApiServices | EntrySection::RestTools => {}
        EntrySection::Chains | EntrySection::Agents => {
            let word = part.section.noun();
            return Err(CliError::usage(format!("cannot enable or disable a {word}"))
                .hint(format!("remove it: pegboard rm {}", part.name)));
        }
    }
    let is_on = state == SwitchState::On;
    let (enabled, disabled) = (part.path.clone().key("enabled"), part.path.clone().key("disabled"));
    let has_disabled = file.document.get(&disabled).is_some();
    if has_disabled {
        file.document.set(&disabled, &json!(!is_on))?;
    }
    if file.document.get(&enabled).is_some() || (!has_disabled && !is_on) {
        file.document.set(&enabled, &json!(is_on))?;
    }
    Ok(())
}

/// Switches a single tool of a server.
fn switch_tool(
    file: &mut ConfigFile<'_>,
    server: &ConfigEntry,
    tool: &str,
    state: SwitchState,
) -> Result<(), CliError> {
    let denied = server.path.clone().key("toolsDenied");
    let names = |file: &ConfigFile<'_>, key: &str| -> Vec<String> {
        let list = file.document.get(&server.path.clone().key(key)).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let present = names(file, "toolsDenied");
    let matches = |list: &[String]| !ToolFilter::allowing(list.iter().cloned()).permitted(&[tool]).is_empty();
    if state == SwitchState::Off {
        return if matches(&present) { Ok(()) } else { Ok(file.document.append(&denied, &json!(tool))?) };
    }
    for (at, _) in present.iter().enumerate().rev().filter(|(_, name)| name.eq_ignore_ascii_case(tool)) {
        file.document.remove(&denied.clone().index(at))?;
    }
    let left = names(file, "toolsDenied");
    if let Some(glob) = left.iter().find(|glob| matches(std::slice::from_ref(glob))) {
        return Err(CliError::usage(format!("'{tool}' is denied by the pattern '{glob}'")).hint(format!(
            "edit toolsDenied of {} in {}",
            server.name,
            display_path(&file.path)
        )));
    }
    if left.is_empty() && !present.is_empty() {
        file.document.remove(&denied)?;
    }
    for key in ["toolsAllowed", "toolFilters"] {
        let allowed = names(file, key);
        if !allowed.is_empty() && !matches(&allowed) {
            file.document.append(&server.path.clone().key(key), &json!(tool))?;
        }
    }
    Ok(())
}
