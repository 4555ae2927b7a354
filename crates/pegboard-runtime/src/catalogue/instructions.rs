//! Usage instructions for models, combined from all servers of a scope.

use pegboard_core::provider::ToolKind;
use pegboard_core::text::clipped;

use super::{ListingSlot, Snapshot, ToolboxScope};

/// Maximum length of the instructions of one server.
const MAX_SERVER_BYTES: usize = 16 * 1024;
/// Maximum length of the instructions of one tool.
const MAX_TOOL_BYTES: usize = 1024;
/// Maximum length of the combined text.
const MAX_BYTES: usize = 256 * 1024;

impl Snapshot {
    /// Returns the usage instructions for the tools of a scope: agents first, then other providers.
    ///
    /// ```
    /// # use pegboard_runtime::catalogue::{ToolboxScope, Snapshot};
    /// assert_eq!(Snapshot::default().instructions(ToolboxScope::All), "");
    /// ```
    pub fn instructions(&self, scope: ToolboxScope<'_>) -> String {
        let is_included = |slot: &&ListingSlot| scope.has(&slot.listing.toolbox) && has_content(slot);
        let (agents, others): (Vec<&ListingSlot>, Vec<&ListingSlot>) =
            self.slots.iter().filter(is_included).partition(|slot| slot.listing.kind == ToolKind::Agent);
        let mut text = String::new();
        for slot in agents {
            self.add_section(&mut text, slot);
        }
        if !others.is_empty() {
            add_heading(&mut text, "### Available Tool Providers");
        }
        for slot in others {
            self.add_section(&mut text, slot);
        }
        clipped(&text, MAX_BYTES).into_owned()
    }

    /// Appends the section of one server.
    fn add_section(&self, text: &mut String, slot: &ListingSlot) {
        if text.len() > MAX_BYTES {
            return;
        }
        add_heading(text, &format!("#### {}", slot.label));
        let instructions = server_instructions(slot);
        let lines = self.lines(slot);
        if let Some(instructions) = instructions {
            text.push('\n');
            text.push_str(&clipped(instructions, MAX_SERVER_BYTES));
            text.push('\n');
        }
        if !lines.is_empty() {
            text.push('\n');
            text.push_str(&lines);
        }
        if instructions.is_none() && lines.is_empty() {
            text.push_str("\nNo specific instructions for this server.\n");
        }
    }

    /// Returns one line for every tool with instructions.
    fn lines(&self, slot: &ListingSlot) -> String {
        let mut lines = String::new();
        for tool in &self.tools[slot.span.clone()] {
            let instructions = tool.instructions().unwrap_or_default().trim();
            if instructions.is_empty() {
                continue;
            }
            // The text of a tool is folded into one line.
            let instructions =
                clipped(instructions, MAX_TOOL_BYTES).split_whitespace().collect::<Vec<_>>().join(" ");
            lines.extend(["- ", &tool.flat_name, ": ", &instructions, "\n"]);
            if lines.len() > MAX_BYTES {
                break;
            }
        }
        lines
    }
}

fn add_heading(text: &mut String, heading: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(heading);
    text.push('\n');
}

/// Returns `true` if the server has tools or instructions; a server that has not started yet has neither.
fn has_content(slot: &ListingSlot) -> bool {
    !slot.span.is_empty() || server_instructions(slot).is_some()
}

fn server_instructions(slot: &ListingSlot) -> Option<&str> {
    slot.listing.offer.instructions.as_deref().map(str::trim).filter(|instructions| !instructions.is_empty())
}
