//! What was set for a tool, for its server, or by the tool itself: whoever is nearest to the tool is heard.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::duration::{HumanDuration, Ttl};
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::settings::{ServerSettings, ToolSettings};

use super::{Rules, TimeLimit};
use crate::queue::Priority;

/// Whether a tool says of itself that calling it again is not the same as calling it once.
fn says_it_changes_things(says: &Annotations) -> bool {
    let writes = says.read_only == Some(false) || says.destructive == Some(true);
    writes && says.read_only != Some(true) && says.idempotent != Some(true)
}

impl TimeLimit {
    fn set(limit: Option<HumanDuration>) -> Self {
        match limit.map(Duration::from) {
            None => Self::Unset,
            Some(Duration::ZERO) => Self::Never,
            Some(limit) => Self::After(limit),
        }
    }
}

impl Rules {
    /// What holds for every tool of a server.
    pub(super) fn of_server(settings: &ServerSettings) -> Self {
        Self {
            queue: settings.queue.as_deref().map(Arc::from),
            priority: Priority::new(settings.priority),
            cache: settings.cache.and_then(Ttl::as_duration),
            cache_scope: settings.cache_scope,
            time_limit: TimeLimit::set(settings.request_timeout_ms),
            max_output: settings.tool_response_max_bytes,
            judge: settings.validate_arguments,
            output: settings.output,
        }
    }

    /// What holds for one tool of the server with these rules.
    pub(super) fn for_tool(&self, entry: &ToolEntry, server: &ServerSettings) -> Self {
        let mut rules = self.clone();
        // What holds for a whole server is not meant for tools that say they change things.
        if says_it_changes_things(entry.annotations()) {
            rules.cache = None;
        }
        if let Some(ttl) = server.tools_cache.get(entry.name()) {
            rules.cache = ttl.as_duration();
        }
        if let Some(tool) = server.tools.get(entry.name()) {
            rules.set(tool);
        }
        rules.queue = rules.queue.or_else(|| entry.queue().map(Arc::from));
        rules
    }

    fn set(&mut self, tool: &ToolSettings) {
        if let Some(queue) = &tool.queue {
            self.queue = Some(queue.as_str().into());
        }
        if let Some(priority) = tool.priority {
            self.priority = Priority::new(priority);
        }
        if let Some(ttl) = tool.cache {
            self.cache = ttl.as_duration();
        }
        if tool.timeout.is_some() {
            self.time_limit = TimeLimit::set(tool.timeout);
        }
        self.max_output = tool.tool_response_max_bytes.or(self.max_output);
        self.judge = tool.validate_arguments.or(self.judge);
    }
}
