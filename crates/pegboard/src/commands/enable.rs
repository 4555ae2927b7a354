//! `pegboard enable` and `pegboard disable`: servers, services and single tools that are used, or not.

use std::process::ExitCode;

use clap::Args;
use pegboard::runtime::filter::ToolFilter;
use serde_json::{Map, Value, json};

use super::own_file::{OwnFile, Part, Section, Target, find_part, parts, refused, shown};
use crate::cli::{Failure, Globals};

/// What is switched.
#[derive(Args)]
pub(crate) struct Switch {
    /// What is switched: SERVER, TOOLBOX/SERVER, or SERVER/TOOL
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    target: Target,
}

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    On,
    Off,
}

impl Switch {
    pub(crate) fn run(self, globals: &Globals, turn: Turn) -> Result<ExitCode, Failure> {
        let mut file = OwnFile::open(globals, self.target)?;
        for name in &self.names {
            let (part, tool) = find_part(&parts(file.document.value()), name)?;
            match tool {
                None => switch(&mut file, &part, turn)?,
                Some(tool) if part.section == Section::Servers => switch_tool(&mut file, &part, tool, turn)?,
                Some(_) => {
                    let what = part.section.word();
                    return Err(Failure::usage(format!("single tools of a {what} cannot be switched"))
                        .hint("name what it may offer in the file: include, exclude"));
                }
            }
        }
        let changed = file.finish(self.target.writing())?;
        let verb = match (turn, changed.has_effect) {
            (Turn::On, true) => "Enabled",
            (Turn::Off, true) => "Disabled",
            (Turn::On, false) => "Already enabled",
            (Turn::Off, false) => "Already disabled",
        };
        let text = format!("{verb} {}: {}", self.names.join(", "), shown(&changed.path));
        let document = Map::from_iter([
            ("names".to_owned(), json!(self.names)),
            ("enabled".to_owned(), json!(turn == Turn::On)),
        ]);
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        changed.tell(globals, if turn == Turn::On { &names } else { &[] }, document, &text);
        Ok(ExitCode::SUCCESS)
    }
}

/// Switches a whole server or service, in the words that its entry has already.
fn switch(file: &mut OwnFile, part: &Part, turn: Turn) -> Result<(), Failure> {
    match part.section {
        Section::Servers | Section::Services | Section::RestTools => {}
        Section::Chains | Section::Agents => {
            let word = part.section.word();
            return Err(Failure::usage(format!("a {word} cannot be switched off"))
                .hint(format!("take it out: pegboard rm {}", part.name)));
        }
    }
    let is_on = turn == Turn::On;
    let (enabled, disabled) = (part.way.clone().key("enabled"), part.way.clone().key("disabled"));
    let has_disabled = file.document.get(&disabled).is_some();
    if has_disabled {
        file.set(&disabled, &json!(!is_on))?;
    }
    if file.document.get(&enabled).is_some() || (!has_disabled && !is_on) {
        file.set(&enabled, &json!(is_on))?;
    }
    Ok(())
}

/// Switches a single tool of a server.
fn switch_tool(file: &mut OwnFile, server: &Part, tool: &str, turn: Turn) -> Result<(), Failure> {
    let denied = server.way.clone().key("toolsDenied");
    let names = |file: &OwnFile, key: &str| -> Vec<String> {
        let list = file.document.get(&server.way.clone().key(key)).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let present = names(file, "toolsDenied");
    let matches = |list: &[String]| !ToolFilter::allowing(list.iter().cloned()).permitted(&[tool]).is_empty();
    if turn == Turn::Off {
        return if matches(&present) {
            Ok(())
        } else {
            file.document.append(&denied, &json!(tool)).map_err(refused)
        };
    }
    for (at, _) in present.iter().enumerate().rev().filter(|(_, name)| name.eq_ignore_ascii_case(tool)) {
        file.remove(&denied.clone().index(at))?;
    }
    let left = names(file, "toolsDenied");
    if let Some(glob) = left.iter().find(|glob| matches(std::slice::from_ref(glob))) {
        return Err(Failure::usage(format!("'{tool}' is denied by '{glob}', with others")).hint(format!(
            "change toolsDenied of {} in {} by hand",
            server.name,
            shown(&file.path)
        )));
    }
    if left.is_empty() && !present.is_empty() {
        file.remove(&denied)?;
    }
    for key in ["toolsAllowed", "toolFilters"] {
        let allowed = names(file, key);
        if !allowed.is_empty() && !matches(&allowed) {
            file.document.append(&server.way.clone().key(key), &json!(tool)).map_err(refused)?;
        }
    }
    Ok(())
}
