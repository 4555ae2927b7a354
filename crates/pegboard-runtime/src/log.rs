//! What happened, in words, for people who operate this.
//!
//! Every event is one `tracing` event, so that any subscriber can filter and write it. Arguments and answers are
//! never part of it. What a server or a model said is shown with nothing in it that could act on a terminal or look
//! like another line.

use std::fmt::{self, Write};

use pegboard_core::provider::ServerState;
use pegboard_core::store::OutputHandle;

use crate::event::{CacheResult, End, Event, ModelEnd, Observer, Start, StoreReason, Subject};
use crate::spans::millis;

/// How much is shown of a text that came from elsewhere, in characters.
const MAX_SHOWN: usize = 500;

/// Writes what happens to the log.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_runtime::event::{Event, Events};
/// use pegboard_runtime::log::Log;
///
/// let events = Events::new([Arc::new(Log) as _]);
/// events.emit(|| Event::Catalogue { n_tools: 3 });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

/// Writes an event about a call: the level, the call, the direction, then fields of its own and the message.
macro_rules! about {
    ($level:ident, $target:literal, $call:expr, $direction:literal, $($rest:tt)+) => {{
        let call: &Subject = $call;
        tracing::$level!(
            target: $target,
            direction = $direction,
            "type" = "tool",
            tool_kind = call.kind.as_str(),
            remote = %Remote(call),
            session = %Plain(&call.session),
            operation = %Plain(&call.operation),
            $($rest)+
        )
    }};
}

impl Observer for Log {
    fn observe(&self, event: &Event) {
        match event {
            Event::ToolStarted { call } => {
                about!(debug, "pegboard::tool", call, "request", n_bytes = call.n_bytes_in, "started");
            }
            Event::ToolFinished { call, end } => finished(call, end),
            Event::Progress { call, done, total, message } => {
                let message = Plain(message.as_deref().unwrap_or_default());
                about!(trace, "pegboard::tool", call, "response", done, total, "progress: {message}");
            }
            Event::Turn { call, turn, most } => {
                about!(
                    debug,
                    "pegboard::agent",
                    call,
                    "request",
                    turn,
                    most,
                    "turn {turn} of at most {most}"
                );
            }
            Event::Status { call, status } => {
                about!(info, "pegboard::agent", call, "response", "status: {}", Plain(status));
            }
            Event::AgentWarned { call, what } => {
                about!(warn, "pegboard::agent", call, "response", "{}", Plain(what));
            }
            Event::ModelStarted { call, operation: _, model } => {
                let model = model.to_string();
                about!(debug, "pegboard::model", call, "request", model, "asked");
            }
            Event::ModelFinished { call, operation: _, end } => model_finished(call, end),
            Event::Queued { call, queue, place } => {
                let queue = Plain(queue);
                about!(debug, "pegboard::queue", call, "request", event = "queue_enqueued", %queue, place, "queued");
            }
            Event::Dequeued { call, queue, waited } => {
                let (queue, wait_ms) = (Plain(queue), millis(*waited));
                about!(debug, "pegboard::queue", call, "request", event = "queue_dequeued", %queue, wait_ms, "dequeued");
            }
            Event::QueueDepth { queue, capacity, in_use, waiting } => {
                let queue = Plain(queue);
                tracing::trace!(target: "pegboard::queue", %queue, capacity, in_use, waiting, "queue depth");
            }
            Event::Cache { call, result } => cache(call, *result),
            Event::OutputStored { call, handle, reason, n_bytes, n_lines, n_tokens } => {
                output(call, handle.as_ref(), *reason, [*n_bytes, *n_lines, *n_tokens]);
            }
            Event::Corrected { asked, tool } => tracing::warn!(
                target: "pegboard::tool",
                event = "tool_autocorrected",
                "'{}' was taken for '{}'",
                Plain(asked),
                Plain(tool),
            ),
            Event::Server { toolbox, server, state } => server_state(toolbox, server, state),
            Event::Started { servers } => started(servers),
            Event::Catalogue { n_tools } => {
                tracing::info!(target: "pegboard::catalogue", n_tools, "catalogue changed");
            }
        }
    }
}

fn finished(call: &Subject, end: &End) {
    let (latency_ms, n_bytes) = (millis(end.duration), end.n_bytes_out);
    let Some(error) = end.error else {
        about!(
            debug,
            "pegboard::tool",
            call,
            "response",
            latency_ms,
            n_bytes,
            is_cached = end.is_cached,
            "ok"
        );
        return;
    };
    about!(
        warn,
        "pegboard::tool",
        call,
        "response",
        latency_ms,
        n_bytes,
        error_type = error.as_str(),
        "error {}: {}",
        Plain(&call.tool),
        Plain(end.message.as_deref().unwrap_or(error.as_str())),
    );
}

fn model_finished(call: &Subject, end: &ModelEnd) {
    let (latency_ms, model) = (millis(end.duration), end.model.to_string());
    let Some(error_type) = end.error else {
        let (n_tokens_in, n_tokens_out) = (end.usage.all_input(), end.usage.output);
        about!(
            debug,
            "pegboard::model",
            call,
            "response",
            model,
            latency_ms,
            n_tokens_in,
            n_tokens_out,
            cost_usd = end.cost_usd,
            "replied"
        );
        return;
    };
    let message = Plain(end.message.as_deref().unwrap_or(error_type));
    about!(warn, "pegboard::model", call, "response", model, latency_ms, error_type, "error: {message}");
}

fn cache(call: &Subject, result: CacheResult) {
    let tool = Plain(&call.tool);
    match result {
        CacheResult::Hit { age } => {
            about!(debug, "pegboard::cache", call, "response", age_ms = millis(age), "cache hit: {tool}");
        }
        CacheResult::Miss => about!(trace, "pegboard::cache", call, "request", "cache miss: {tool}"),
        CacheResult::Joined => about!(trace, "pegboard::cache", call, "request", "cache joined: {tool}"),
        CacheResult::Stored => about!(trace, "pegboard::cache", call, "response", "cache stored: {tool}"),
    }
}

fn output(call: &Subject, handle: Option<&OutputHandle>, reason: StoreReason, sizes: [usize; 3]) {
    let [bytes, lines, tokens] = sizes;
    let (event, what) =
        if handle.is_some() { ("tool_output_stored", "stored") } else { ("tool_output_truncated", "cut") };
    about!(
        warn,
        "pegboard::output",
        call,
        "response",
        event,
        handle = handle.map(|OutputHandle(handle)| tracing::field::display(Plain(handle))),
        reason = reason.as_str(),
        bytes,
        lines,
        tokens,
        "output {what}: {}",
        Plain(&call.tool),
    );
}

fn server_state(toolbox: &str, server: &str, state: &ServerState) {
    macro_rules! say {
        ($level:ident, $($message:tt)+) => {
            tracing::$level!(
                target: "pegboard::server",
                toolbox = %Plain(toolbox),
                server = %Plain(server),
                $($message)+
            )
        };
    }
    match state {
        ServerState::Idle => say!(info, "server is idle"),
        ServerState::Starting => say!(info, "server starts"),
        ServerState::Ready => say!(info, "server is ready"),
        ServerState::Restarting { attempt } => say!(warn, attempt, "server went away and is started again"),
        ServerState::NeedsLogin { fix } => say!(warn, "server needs a login: {}", Plain(fix)),
        ServerState::Failed { why, fix } => {
            say!(warn, "server cannot be used: {}: {}", Plain(why), Plain(fix));
        }
        ServerState::Stopped => say!(info, "server has stopped"),
    }
}

/// How the start of all servers went, in one line.
fn started(servers: &[Start]) {
    let n_ready = servers.iter().filter(|start| start.error.is_none()).count();
    let each = servers.iter().map(|Start { server, took, error, .. }| match error {
        None => format!("{} {}ms", Plain(server), millis(*took)),
        Some(error) => format!("{} failed after {}ms ({})", Plain(server), millis(*took), Plain(error)),
    });
    tracing::info!(
        target: "pegboard::server",
        "{n_ready} of {} servers are ready: {}",
        servers.len(),
        each.collect::<Vec<_>>().join(", ")
    );
}

/// Where a call goes: `mcp:github:search`.
struct Remote<'a>(&'a Subject);

impl fmt::Display for Remote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { kind, server, tool, .. } = self.0;
        write!(f, "{}:{}:{}", kind.as_str(), Plain(server), Plain(tool))
    }
}

/// A text that came from elsewhere, on one line, with what cannot be seen escaped, and not too long.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, character) in self.0.chars().enumerate() {
            if place == MAX_SHOWN {
                return f.write_char('…');
            }
            if is_unseen(character) {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Whether a character moves the cursor, ends the line or turns what follows around instead of being seen.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}
