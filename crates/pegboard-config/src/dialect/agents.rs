//! The agents of a toolbox, which are files of their own.

use std::path::PathBuf;

use crate::agent::{Agents, Edge, Refusal, pattern};
use crate::configuration::{AgentEntry, Toolbox};
use crate::path::{Path, Step};
use crate::read::{Missing, Reader, Strictness};
use crate::tree::{Node, Value};

/// Reads the agents that a list names, by paths and patterns, and those that these name. What is wrong with one leaves
/// out that one and those that need it.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node, way: &Path, toolbox: &mut Toolbox) {
    let items: Vec<(&Node, Path)> = match &node.value {
        Value::Null => return,
        Value::List(items) => {
            items.iter().enumerate().map(|(index, item)| (item, way.step(Step::Index(index)))).collect()
        }
        Value::Text(_) => vec![(node, way.clone())],
        Value::Bool(_) | Value::Number(_) | Value::Map(_) => {
            let message = format!("expected a list of files, not {}", node.kind());
            // In a file that is not ours somebody else may mean something else by it.
            if reader.text(node.span).strictness == Strictness::Strict {
                reader.error(node.span, way, message, None);
            } else {
                reader.warn(node.span, way, "unknown setting, which is left alone", None);
            }
            return;
        }
    };
    let mut agents = Agents::new(&reader.text(node.span).folder);
    for (item, way) in items {
        reader.begin_part();
        for path in files(reader, item, &way) {
            match agents.load(&path, Edge::Agent) {
                // What is wrong with its file is told there.
                Ok(_) | Err(Refusal::Unusable(_)) => {}
                Err(Refusal::Wrong { message, help }) => reader.error(item.span, &way, message, Some(help)),
            }
        }
        reader.end_part(&way);
    }
    agents.take_files().into_iter().for_each(|path| reader.watch(path));
    let (entries, problems) = agents.finish();
    reader.add_of_other_files(problems);
    for (name, entry) in entries {
        let other = toolbox.agents.get(&name).map(AgentEntry::path);
        if other.is_some_and(|other| other != entry.path()) {
            let message = format!("Duplicate sub-agent tool name '{name}' detected during preload.");
            reader.begin_part();
            reader.error(node.span, way, message, Some("give one of them another toolName".to_owned()));
            reader.end_part(way);
        } else {
            toolbox.agents.insert(name, entry);
        }
    }
}

/// The files that one item of the list names.
fn files(reader: &mut Reader<'_>, item: &Node, way: &Path) -> Vec<PathBuf> {
    let Value::Text(written) = &item.value else {
        reader.error(item.span, way, format!("expected the path of a file, not {}", item.kind()), None);
        return Vec::new();
    };
    let (written, _) = reader.fill_text(written, item.span, way, Missing::Told);
    if reader.is_part_wrong() {
        return Vec::new();
    }
    let folder = &reader.text(item.span).folder;
    if !pattern::is_pattern(&written) {
        return vec![folder.join(written)];
    }
    let help = Some("check the pattern; it begins in the folder of this file".to_owned());
    match pattern::files(folder, &written) {
        Ok(files) if files.is_empty() => {
            reader.error(item.span, way, "there is no file that this names", help);
            Vec::new()
        }
        Ok(files) => files,
        Err(pattern::TooMany) => {
            reader.error(item.span, way, "too many files would have to be looked at for this", help);
            Vec::new()
        }
    }
}
