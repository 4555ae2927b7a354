//! Execution policy of a tool: settings of the tool override those of its server, which override the tool's
//! defaults.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::duration::{HumanDuration, Ttl};
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::settings::{ServerSettings, ToolSettings};

use super::{TimeLimit, ToolPolicy};
use crate::queue::Priority;

/// Returns `true` if the annotations declare the tool non-idempotent and writing.
fn is_mutating(annotations: &ToolAnnotations) -> bool {
    let writes = annotations.read_only == Some(false) || annotations.destructive == Some(true);
    writes && annotations.read_only != Some(true) && annotations.idempotent != Some(true)
}

impl TimeLimit {
    fn from_setting(limit: Option<HumanDuration>) -> Self {
        match limit.map(Duration::from) {
            None => Self::Unset,
            Some(Duration::ZERO) => Self::Unlimited,
            Some(limit) => Self::After(limit),
        }
    }
}

impl ToolPolicy {
    /// Returns the policy of all tools of a server.
    pub(super) fn of_server(settings: &ServerSettings) -> Self {
        Self {
            queue: settings.queue.as_deref().map(Arc::from),
            priority: Priority::new(settings.priority),
            cache: settings.cache.and_then(Ttl::as_duration),
            cache_scope: settings.cache_scope,
            time_limit: TimeLimit::from_setting(settings.request_timeout_ms),
            max_output: settings.tool_response_max_bytes,
            judge: settings.validate_arguments,
            output: settings.output,
        }
    }

    /// Returns the policy of one tool, given the policy of its server.
    pub(super) fn for_tool(&self, entry: &ToolEntry, server: &ServerSettings) -> Self {
        let mut policy = self.clone();
        // A cache setting for a whole server does not apply to tools that declare themselves mutating.
        if is_mutating(entry.annotations()) {
            policy.cache = None;
        }
        if let Some(ttl) = server.tools_cache.get(entry.name()) {
            policy.cache = ttl.as_duration();
        }
        if let Some(tool) = server.tools.get(entry.name()) {
            policy.apply(tool);
        }
        policy.queue = policy.queue.or_else(|| entry.queue().map(Arc::from));
        policy
    }

    fn apply(&mut self, tool: &ToolSettings) {
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
            self.time_limit = TimeLimit::from_setting(tool.timeout);
        }
        self.max_output = tool.tool_response_max_bytes.or(self.max_output);
        self.judge = tool.validate_arguments.or(self.judge);
    }
}
