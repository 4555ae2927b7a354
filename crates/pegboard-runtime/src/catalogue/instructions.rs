//! What a model should know about using the tools, in one text.

use pegboard_core::provider::ToolKind;
use pegboard_core::text::clipped;

use super::{Scope, Snapshot, Stand};

/// How much of what a server says is passed on.
const MAX_SERVER_BYTES: usize = 16 * 1024;
/// How much of what is said about one tool is passed on.
const MAX_TOOL_BYTES: usize = 1024;
/// How long the whole text may be.
const MAX_BYTES: usize = 256 * 1024;

impl Snapshot {
    /// What a model should know about using the tools of a scope: agents first, then the other providers.
    ///
    /// ```
    /// # use pegboard_runtime::catalogue::{Scope, Snapshot};
    /// assert_eq!(Snapshot::default().instructions(Scope::All), "");
    /// ```
    pub fn instructions(&self, scope: Scope<'_>) -> String {
        let is_heard = |stand: &&Stand| scope.has(&stand.shelf.toolbox) && has_a_say(stand);
        let (agents, others): (Vec<&Stand>, Vec<&Stand>) =
            self.stands.iter().filter(is_heard).partition(|stand| stand.shelf.kind == ToolKind::Agent);
        let mut text = String::new();
        for stand in agents {
            self.add_section(&mut text, stand);
        }
        if !others.is_empty() {
            add_heading(&mut text, "### Available Tool Providers");
        }
        for stand in others {
            self.add_section(&mut text, stand);
        }
        clipped(&text, MAX_BYTES).into_owned()
    }

    /// What there is to know about one server.
    fn add_section(&self, text: &mut String, stand: &Stand) {
        if text.len() > MAX_BYTES {
            return;
        }
        add_heading(text, &format!("#### {}", stand.label));
        let words = said(stand);
        let lines = self.lines(stand);
        if let Some(words) = words {
            text.push('\n');
            text.push_str(&clipped(words, MAX_SERVER_BYTES));
            text.push('\n');
        }
        if !lines.is_empty() {
            text.push('\n');
            text.push_str(&lines);
        }
        if words.is_none() && lines.is_empty() {
            text.push_str("\nNo specific instructions for this server.\n");
        }
    }

    /// A line for every tool that has instructions.
    fn lines(&self, stand: &Stand) -> String {
        let mut lines = String::new();
        for tool in &self.tools[stand.span.clone()] {
            let words = tool.instructions().unwrap_or_default().trim();
            if words.is_empty() {
                continue;
            }
            // Everything about a tool stands on its line.
            let words = clipped(words, MAX_TOOL_BYTES).split_whitespace().collect::<Vec<_>>().join(" ");
            lines.extend(["- ", &tool.flat_name, ": ", &words, "\n"]);
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

/// A server that is not there yet has nothing to say.
fn has_a_say(stand: &Stand) -> bool {
    !stand.span.is_empty() || said(stand).is_some()
}

fn said(stand: &Stand) -> Option<&str> {
    stand.shelf.offer.instructions.as_deref().map(str::trim).filter(|words| !words.is_empty())
}
