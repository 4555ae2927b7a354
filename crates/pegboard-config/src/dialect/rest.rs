//! One tool that is a request to a web service.

use indexmap::IndexMap;
use pegboard_core::id::ToolName;
use pegboard_core::settings::rest::{InvalidRestTool, RestToolEntry, RestToolSettings};
use pegboard_core::settings::{QueueSettings, ToolSettings};

use super::server::{DEFAULT_QUEUE, filled, is_off, split};
use crate::configuration::{RestEntry, Toolbox};
use crate::near::near;
use crate::path::{Path, Step};
use crate::read::{Missing, Reader};
use crate::tree::{Entry, Node, Value};

/// Reads one tool into its toolbox. What is wrong with it leaves out that tool alone.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry,
    way: &Path,
    toolbox: &mut Toolbox,
    queues: &IndexMap<String, QueueSettings>,
) {
    let way = way.key(&entry.key);
    let missing = if is_off(&entry.value) { Missing::Ignored } else { Missing::Told };
    reader.begin_part();
    let (name, _) = reader.fill_text(&entry.key, entry.key_span, &way, missing);
    let name = match ToolName::new(&name) {
        Ok(name) => Some(name),
        Err(invalid) => {
            reader.error(
                entry.key_span,
                &way,
                invalid.to_string(),
                Some("call it something else".to_owned()),
            );
            None
        }
    };
    if name.as_ref().is_some_and(|name| toolbox.rest_tools.contains_key(name)) {
        let help = Some("call one of them something else".to_owned());
        reader.error(entry.key_span, &way, "the toolbox has a REST tool of this name", help);
    }
    let described = describe(reader, &entry.value, &way, missing);
    if let Some(described) = &described {
        check_queue(reader, entry, &way, &described.tool, queues);
    }
    let tool = match (&name, described) {
        (Some(name), Some(described)) if !reader.is_part_wrong() => {
            normalise(reader, name, described, entry, &way)
        }
        _ => None,
    };
    let part = reader.end_part(&way);
    let Some(name) = name.filter(|name| !toolbox.rest_tools.contains_key(name)) else { return };
    let tool = match tool.filter(|_| !part.is_wrong) {
        Some(tool) => tool,
        None => RestEntry::Unusable { needs: part.needs, problems: part.problems },
    };
    toolbox.rest_tools.insert(name, tool);
}

fn describe(reader: &mut Reader<'_>, node: &Node, way: &Path, missing: Missing) -> Option<RestToolEntry> {
    let Value::Map(entries) = &node.value else {
        reader.error(node.span, way, format!("a REST tool is an object, not {}", node.kind()), None);
        return None;
    };
    let filled = filled(reader, node, entries, way, (missing, "parametersSchema"));
    let (request, tool, _) = split(reader, &filled, way, &RestToolSettings::FIELDS);
    Some(RestToolEntry { request: request?, tool: tool? })
}

fn check_queue(
    reader: &mut Reader<'_>,
    entry: &Entry,
    way: &Path,
    settings: &ToolSettings,
    queues: &IndexMap<String, QueueSettings>,
) {
    let Some(queue) = settings.queue.as_deref() else { return };
    if queue != DEFAULT_QUEUE && !queues.contains_key(queue) {
        let tool = &entry.key;
        let message = format!(
            "REST tool '{tool}' references unknown queue '{queue}'. Add it under configuration.queues."
        );
        let help =
            near(queue, queues.keys().map(String::as_str)).map(|meant| format!("did you mean {meant}?"));
        let span = entry.value.get("queue").unwrap_or(&entry.value).span;
        // What is missing is missing from the file, and the tool may be as it should.
        reader.error_of_file(span, &way.key("queue"), message, help);
    }
}

fn normalise(
    reader: &mut Reader<'_>,
    name: &ToolName,
    described: RestToolEntry,
    entry: &Entry,
    way: &Path,
) -> Option<RestEntry> {
    let is_enabled = described.request.enabled.unwrap_or(true);
    match described.normalise(name.clone()) {
        Ok((request, settings)) => {
            let (request, settings) = (Box::new(request), Box::new(settings));
            Some(RestEntry::Usable { is_enabled, request, settings })
        }
        Err(wrong) => {
            for wrong in &wrong {
                tell(reader, wrong, entry, way);
            }
            None
        }
    }
}

/// Tells what is wrong where it was written, or as near to it as the file goes.
fn tell(reader: &mut Reader<'_>, wrong: &InvalidRestTool, entry: &Entry, way: &Path) {
    let mut found = &entry.value;
    for key in &wrong.way {
        let Some(deeper) = found.get(key) else { break };
        found = deeper;
    }
    let steps: Vec<Step> = wrong.way.iter().cloned().map(Step::Key).collect();
    let help = wrong.unknown.as_ref().and_then(|(name, known)| {
        let known = known.iter().map(String::as_str);
        near(name, known).map(|meant| format!("did you mean {meant}?"))
    });
    reader.error(found.span, &way.then(&steps), wrong.message.clone(), help);
}
