//! Requests that may be sent again after their connection broke.

/// Safety of sending a request a second time, when a reused connection broke before the response: the server may have
/// closed it just before the request arrived, or just after it was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResendSafety {
    /// Repeating it has no further effect.
    Safe,
    /// It may have run, and must not run twice.
    Unsafe,
}

impl ResendSafety {
    /// Returns the safety of a request. A tool call is never sent again here: its caller knows whether it is idempotent,
    /// and two that repeat it would multiply.
    pub(crate) fn of(method: &str) -> Self {
        match method {
            "initialize"
            | "server/discover"
            | "ping"
            | "logging/setLevel"
            | "completion/complete"
            | "tools/list"
            | "prompts/list"
            | "prompts/get"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "subscriptions/listen"
            | "tasks/list"
            | "tasks/get"
            | "tasks/result"
            | "tasks/cancel" => Self::Safe,
            _ => Self::Unsafe,
        }
    }
}
