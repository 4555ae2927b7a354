//! Server instructions for models: the toolboxes and the use of meta-tools.

use pegboard_core::id::ServerName;
use pegboard_core::text::clipped;
use pegboard_runtime::catalogue::Snapshot;
use pegboard_runtime::toolbox::ConfiguredToolbox;
use serde_json::json;

use crate::profile::ActiveProfile;

/// Lengths of a toolbox description, tried in turn until the list is small enough.
const DESCRIPTION_LENGTHS: [usize; 4] = [1024, 160, 60, 0];
/// Size of the toolbox list above which descriptions are shortened.
const LIST_BYTES: usize = 4 * 1024;
/// Maximum length of the toolbox list.
const MAX_LIST_BYTES: usize = 64 * 1024;
/// Number of tools above which the instructions lead to a search rather than to a toolbox.
const MANY_TOOLS: usize = 20;
/// Maximum number of tools named in the place of a description.
const MAX_NAMED_TOOLS: usize = 5;

/// Renders the instructions for the clients of a profile.
pub(crate) fn for_profile(profile: &ActiveProfile) -> String {
    let (toolboxes, snapshot) = (profile.toolboxes(), profile.runtime.catalogue());
    let Some(first) = toolboxes.first() else {
        return include_str!("instructions/none.md").trim_end().to_owned();
    };
    let n_tools: usize = toolboxes.iter().map(|toolbox| snapshot.tools_of(&toolbox.name).count()).sum();
    let template = if n_tools > MANY_TOOLS {
        include_str!("instructions/search.md")
    } else {
        include_str!("instructions/toolboxes.md")
    };
    let server = first.servers.first().map_or("SERVER", |server| server.as_str());
    let open = json!({"toolbox": first.name});
    let call = json!({"tool": {"toolbox": first.name, "server": server, "name": "TOOL"}, "arguments": {}});
    template
        .trim_end()
        .replace("{n_tools}", &n_tools.to_string())
        .replace("{open}", &open.to_string())
        .replace("{call}", &call.to_string())
        // Last, so that placeholders in descriptions are not expanded.
        .replace("{toolboxes}", &toolbox_list(&toolboxes, &snapshot))
}

/// One line per toolbox. Descriptions are shortened if there are many.
fn toolbox_list(toolboxes: &[ConfiguredToolbox], snapshot: &Snapshot) -> String {
    let mut list = String::new();
    for max_description in DESCRIPTION_LENGTHS {
        let lines = toolboxes.iter().map(|toolbox| toolbox_line(toolbox, snapshot, max_description));
        list = lines.collect::<Vec<_>>().join("\n");
        if list.len() <= LIST_BYTES {
            break;
        }
    }
    clipped(&list, MAX_LIST_BYTES).into_owned()
}

fn toolbox_line(toolbox: &ConfiguredToolbox, snapshot: &Snapshot, max_description: usize) -> String {
    let description = match max_description {
        0 => String::new(),
        _ if toolbox.description.trim().is_empty() => generated_description(toolbox, snapshot),
        _ => one_line(&toolbox.description),
    };
    let description = clipped(&description, max_description);
    let name = &toolbox.name;
    let servers: Vec<&str> = toolbox.servers.iter().map(ServerName::as_str).collect();
    let line = match servers.as_slice() {
        [] => format!("- {name} (0 servers) {description}"),
        // An imported server has a toolbox of its own.
        [server] if *server == name.as_str() => format!("- {name}: {description}"),
        [server] => format!("- {name} (1 server: {server}) {description}"),
        _ => format!("- {name} ({} servers: {}) {description}", servers.len(), servers.join(", ")),
    };
    line.trim_end_matches([' ', ':']).to_owned()
}

/// Describes a toolbox without a description: by what its server says of itself, or else by the names of its tools.
fn generated_description(toolbox: &ConfiguredToolbox, snapshot: &Snapshot) -> String {
    if let [server] = toolbox.servers.as_slice() {
        let is_its = |toolbox_name: &_, name: &_| *toolbox_name == toolbox.name && name == server;
        let mut listings = snapshot.listings().map(|(listing, _)| listing);
        let listing = listings.find(|listing| is_its(&listing.toolbox, &listing.server));
        let instructions = listing.and_then(|listing| listing.offer.instructions.as_deref());
        let instructions = instructions.map(one_line).unwrap_or_default();
        let sentence = instructions.split_once(". ").map_or(instructions.as_str(), |(first, _)| first);
        if !sentence.is_empty() {
            return sentence.to_owned();
        }
    }
    let mut names: Vec<&str> = snapshot.tools_of(&toolbox.name).map(|tool| tool.id.name.as_str()).collect();
    let n_more = names.len().saturating_sub(MAX_NAMED_TOOLS);
    names.truncate(MAX_NAMED_TOOLS);
    match n_more {
        0 => names.join(", "),
        _ => format!("{} and {n_more} more", names.join(", ")),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
