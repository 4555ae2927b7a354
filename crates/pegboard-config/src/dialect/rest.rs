//! An entry of `restTools`.

use indexmap::IndexMap;
use pegboard_core::id::ToolName;
use pegboard_core::settings::{QueueSettings, ToolSettings};

use super::server::{check_queue, expand_entries, is_disabled, read_split};
use crate::configuration::{RestEntry, ToolboxConfig};
use crate::did_you_mean;
use crate::path::{KeyPath, KeySegment};
use crate::read::{ConfigReader, OnUnsetVariable};
use crate::settings::{InvalidRestTool, RestToolSettings};
use crate::tree::{Node, TreeEntry};

/// Reads one tool into its toolbox. A problem leaves out only this tool.
pub(super) fn read(
    reader: &mut ConfigReader<'_>,
    entry: &TreeEntry,
    key_path: &KeyPath,
    toolbox: &mut ToolboxConfig,
    queues: &IndexMap<String, QueueSettings>,
) {
    let key_path = key_path.key(&entry.key);
    let on_unset = if is_disabled(&entry.value) { OnUnsetVariable::Ignore } else { OnUnsetVariable::Report };
    reader.begin_part();
    let name = reader.expand_name(&entry.key, entry.key_span, &key_path, on_unset);
    let name = reader.valid_name(ToolName::new(&name), entry.key_span, &key_path);
    if name.as_ref().is_some_and(|name| toolbox.rest_tools.contains_key(name)) {
        let help = Some("rename one of them".to_owned());
        reader.error(entry.key_span, &key_path, "duplicate REST tool name in the toolbox", help);
    }
    let described = describe(reader, &entry.value, &key_path, on_unset);
    if let Some((_, settings)) = &described {
        let queue = (settings.queue.as_deref(), &["queue"][..]);
        check_queue(reader, ("REST tool", entry), &key_path, queue, queues);
    }
    let tool = match (&name, described) {
        (Some(name), Some(described)) if !reader.is_part_invalid() => {
            resolve(reader, name, described, entry, &key_path)
        }
        _ => None,
    };
    let part = reader.end_part(&key_path);
    let Some(name) = name.filter(|name| !toolbox.rest_tools.contains_key(name)) else { return };
    toolbox.rest_tools.insert(name, part.entry(tool).unwrap_or_else(RestEntry::Unusable));
}

fn describe(
    reader: &mut ConfigReader<'_>,
    node: &Node,
    key_path: &KeyPath,
    on_unset: OnUnsetVariable,
) -> Option<(RestToolSettings, ToolSettings)> {
    let entries = reader.object(node, key_path, "a REST tool", None)?;
    let expanded = expand_entries(reader, node, entries, key_path, (on_unset, "parametersSchema"));
    let (request, tool, _) = read_split(reader, &expanded, key_path);
    Some((request?, tool?))
}

fn resolve(
    reader: &mut ConfigReader<'_>,
    name: &ToolName,
    (request, settings): (RestToolSettings, ToolSettings),
    entry: &TreeEntry,
    key_path: &KeyPath,
) -> Option<RestEntry> {
    match request.resolve(name.clone(), settings) {
        Ok(tool) => Some(tool),
        Err(wrong) => {
            for wrong in &wrong {
                report_invalid(reader, wrong, entry, key_path);
            }
            None
        }
    }
}

/// Reports an error at its location, or as close to it as the file goes.
fn report_invalid(
    reader: &mut ConfigReader<'_>,
    wrong: &InvalidRestTool,
    entry: &TreeEntry,
    key_path: &KeyPath,
) {
    let mut found = &entry.value;
    for key in &wrong.path {
        let Some(deeper) = found.get(key) else { break };
        found = deeper;
    }
    let steps: Vec<KeySegment> = wrong.path.iter().cloned().map(KeySegment::Key).collect();
    let help = wrong.unknown.as_ref().and_then(|(name, known)| {
        let known = known.iter().map(String::as_str);
        did_you_mean(name, known)
    });
    reader.error(found.span, &key_path.extended(&steps), wrong.message.clone(), help);
}
