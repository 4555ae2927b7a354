//! The `agents` list of a toolbox.

use std::path::PathBuf;

use crate::agent::{AgentLoadError, AgentLoader, AgentReference, glob};
use crate::configuration::{AgentEntry, ToolboxConfig};
use crate::path::{KeyPath, KeySegment};
use crate::read::{ConfigReader, KeyStrictness, OnUnsetVariable};
use crate::tree::{Node, Value};

/// Loads the agents that a list names by paths and glob patterns, with those that they reference. A problem
/// in one file leaves out that agent and its dependents.
pub(super) fn read(
    reader: &mut ConfigReader<'_>,
    node: &Node,
    key_path: &KeyPath,
    toolbox: &mut ToolboxConfig,
) {
    let items: Vec<(&Node, KeyPath)> = match &node.value {
        Value::Null => return,
        Value::List(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| (item, key_path.segment(KeySegment::Index(index))))
            .collect(),
        Value::Text(_) => vec![(node, key_path.clone())],
        Value::Bool(_) | Value::Number(_) | Value::Map(_) => {
            let message = format!("expected a list of files, not {}", node.kind());
            // In a foreign file the key may mean something else.
            if reader.text(node.span).strictness == KeyStrictness::Strict {
                reader.error(node.span, key_path, message, None);
            } else {
                reader.warn(node.span, key_path, "unknown setting, ignored", None);
            }
            return;
        }
    };
    let mut agents = AgentLoader::new(&reader.text(node.span).folder);
    for (item, key_path) in items {
        reader.begin_part();
        for path in agent_files(reader, item, &key_path) {
            match agents.load(&path, AgentReference::Agent) {
                // Problems of its file are reported there.
                Ok(_) | Err(AgentLoadError::Unusable(_)) => {}
                Err(AgentLoadError::Invalid { message, help }) => {
                    reader.error(item.span, &key_path, message, Some(help));
                }
            }
        }
        reader.end_part(&key_path);
    }
    agents.take_files().into_iter().for_each(|path| reader.watch(path));
    let (entries, problems) = agents.finish();
    reader.add_problems_of_other_files(problems);
    for (name, entry) in entries {
        let other = toolbox.agents.get(&name).map(AgentEntry::path);
        if other.is_some_and(|other| other != entry.path()) {
            let message = format!("Duplicate sub-agent tool name '{name}' detected during preload.");
            reader.begin_part();
            reader.error(
                node.span,
                key_path,
                message,
                Some("set another toolName for one of them".to_owned()),
            );
            reader.end_part(key_path);
        } else {
            toolbox.agents.insert(name, entry);
        }
    }
}

/// Returns the files that one item of the list names.
fn agent_files(reader: &mut ConfigReader<'_>, item: &Node, key_path: &KeyPath) -> Vec<PathBuf> {
    let Value::Text(written) = &item.value else {
        reader.error(item.span, key_path, format!("expected the path of a file, not {}", item.kind()), None);
        return Vec::new();
    };
    let (written, _) = reader.expand_text(written, item.span, key_path, OnUnsetVariable::Report);
    if reader.is_part_invalid() {
        return Vec::new();
    }
    let folder = &reader.text(item.span).folder;
    if !glob::is_glob(&written) {
        return vec![folder.join(written)];
    }
    let help = Some("check the pattern; it is relative to the directory of this file".to_owned());
    match glob::matching_files(folder, &written) {
        Ok(files) if files.is_empty() => {
            reader.error(item.span, key_path, "no file matches this pattern", help);
            Vec::new()
        }
        Ok(files) => files,
        Err(glob::TooManyFiles) => {
            reader.error(item.span, key_path, "the pattern visits too many files", help);
            Vec::new()
        }
    }
}
