//! Writes runtime events to the log.
//!
//! Every event becomes one `tracing` event, so that any subscriber can filter and format it. Arguments and
//! answers are never included. Text from servers and models is escaped, so that it can neither control a
//! terminal nor imitate another line.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::error::ErrorKind;
use pegboard_core::provider::ServerState;
use pegboard_core::store::OutputHandle;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};

use crate::event::{
    CacheResult, CallEnd, CallInfo, ModelCallEnd, Observer, RuntimeEvent, ServerStart, StoreReason,
};
use crate::spans::millis;

/// Maximum length of a foreign text, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// Observer that writes every event to the log.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_runtime::event::{RuntimeEvent, EventBus};
/// use pegboard_runtime::log::EventLogger;
///
/// let events = EventBus::new([Arc::new(EventLogger::default()) as _]);
/// events.emit(|| RuntimeEvent::Catalogue { n_tools: 3 });
/// ```
#[derive(Debug, Default)]
pub struct EventLogger {
    refusals: RefusalLimiter,
}

/// Limits the log lines about refused calls: many are refused at once, and each line takes longer than the refusal.
#[derive(Debug, Default)]
struct RefusalLimiter(Arc<Mutex<RefusalCount>>);

#[derive(Debug, Default)]
struct RefusalCount {
    logged_at: Option<Instant>,
    n_suppressed: u64,
    /// `true` while there is a report.
    has_report: bool,
    /// The task that reports the suppressed lines if no further refusal does.
    report: Option<AbortHandle>,
}

impl RefusalLimiter {
    /// Minimum interval of log lines.
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Counts a refusal; returns the number of those since the last line if it is to be logged.
    fn count(&self) -> Option<u64> {
        let mut count = self.0.lock();
        let now = Instant::now();
        if let Some(next) =
            count.logged_at.map(|logged_at| logged_at + Self::INTERVAL).filter(|next| now < *next)
        {
            count.n_suppressed += 1;
            let is_first = !std::mem::replace(&mut count.has_report, true);
            // Without the lock: an event loop that ends drops the report at once.
            drop(count);
            if is_first {
                let task = self.report_at(next);
                self.0.lock().report = task;
            }
            return None;
        }
        count.logged_at = Some(now);
        Some(std::mem::take(&mut count.n_suppressed))
    }

    /// Starts the task that reports the suppressed lines. It ends early, with a report, if its event loop does.
    fn report_at(&self, time: Instant) -> Option<AbortHandle> {
        let report = SuppressedReport(Arc::clone(&self.0));
        let task = async move {
            time::sleep_until(time).await;
            drop(report);
        };
        Some(Handle::try_current().ok()?.spawn(task).abort_handle())
    }

    /// Ends the task; it reports what it has not reported yet.
    fn close(&self) {
        let report = self.0.lock().report.take();
        report.inspect(AbortHandle::abort);
        report_suppressed(std::mem::take(&mut self.0.lock().n_suppressed));
    }
}

/// Reports the suppressed lines when it is dropped.
struct SuppressedReport(Arc<Mutex<RefusalCount>>);

impl Drop for SuppressedReport {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        (count.has_report, count.report) = (false, None);
        let n_suppressed = std::mem::take(&mut count.n_suppressed);
        drop(count);
        report_suppressed(n_suppressed);
    }
}

fn report_suppressed(n_suppressed: u64) {
    if n_suppressed > 0 {
        tracing::warn!(target: "pegboard::tool", n_suppressed, "more calls were refused and not logged");
    }
}

/// Logs an event of a call: level, target, call, direction, then additional fields and the message.
macro_rules! log_call {
    ($level:ident, $target:literal, $call:expr, $direction:literal, $($rest:tt)+) => {{
        let call: &CallInfo = $call;
        tracing::$level!(
            target: $target,
            direction = $direction,
            "type" = "tool",
            tool_kind = call.kind.as_str(),
            remote = %Remote(call),
            session = %Sanitized(&call.session),
            operation = %call.operation,
            $($rest)+
        )
    }};
}

impl EventLogger {
    /// Logs the end of a call.
    fn finished(&self, call: &CallInfo, end: &CallEnd) {
        let is_refused = matches!(end.error, Some(ErrorKind::LimitExceeded | ErrorKind::QueueTimeout));
        if !is_refused {
            return finished(call, end);
        }
        let Some(n_suppressed) = self.refusals.count() else { return };
        finished(call, end);
        report_suppressed(n_suppressed);
    }
}

impl Observer for EventLogger {
    fn shut_down(&self) {
        self.refusals.close();
    }

    fn observe(&self, event: &RuntimeEvent) {
        match event {
            RuntimeEvent::ToolStarted { call } => {
                log_call!(debug, "pegboard::tool", call, "request", n_bytes = call.n_bytes_in, "started");
            }
            RuntimeEvent::ToolFinished { call, end } => self.finished(call, end),
            RuntimeEvent::Progress { call, done, total, message } => {
                let message = Sanitized(message.as_deref().unwrap_or_default());
                log_call!(trace, "pegboard::tool", call, "response", done, total, "progress: {message}");
            }
            RuntimeEvent::Turn { call, turn, most } => {
                log_call!(
                    debug,
                    "pegboard::agent",
                    call,
                    "request",
                    turn,
                    most,
                    "turn {turn} of at most {most}"
                );
            }
            RuntimeEvent::Status { call, status } => {
                log_call!(info, "pegboard::agent", call, "response", "status: {}", Sanitized(status));
            }
            RuntimeEvent::AgentWarned { call, what } => {
                log_call!(warn, "pegboard::agent", call, "response", "{}", Sanitized(what));
            }
            RuntimeEvent::ModelStarted { call, operation: _, model } => {
                let model = model.to_string();
                log_call!(debug, "pegboard::model", call, "request", model, "request sent");
            }
            RuntimeEvent::ModelFinished { call, operation: _, end } => model_finished(call, end),
            RuntimeEvent::Queued { call, queue, place } => {
                let queue = Sanitized(queue);
                log_call!(debug, "pegboard::queue", call, "request", event = "queue_enqueued", %queue, place, "queued");
            }
            RuntimeEvent::Dequeued { call, queue, waited } => {
                let (queue, wait_ms) = (Sanitized(queue), millis(*waited));
                log_call!(debug, "pegboard::queue", call, "request", event = "queue_dequeued", %queue, wait_ms, "dequeued");
            }
            RuntimeEvent::QueueDepth { queue, capacity, in_use, waiting } => {
                let queue = Sanitized(queue);
                tracing::trace!(target: "pegboard::queue", %queue, capacity, in_use, waiting, "queue depth");
            }
            RuntimeEvent::Cache { call, result } => cache(call, *result),
            RuntimeEvent::OutputStored { call, handle, reason, n_bytes, n_lines, n_tokens } => {
                output(call, handle.as_ref(), *reason, [*n_bytes, *n_lines, *n_tokens]);
            }
            RuntimeEvent::Corrected { asked, tool } => corrected(asked, tool),
            RuntimeEvent::Server { toolbox, server, state } => server_state(toolbox, server, state),
            RuntimeEvent::Started { servers } => started(servers),
            // Logged by the writer, at most once a minute, and by the transport, once per stream.
            RuntimeEvent::LogLost { .. } | RuntimeEvent::NotificationsDropped { .. } => {}
            RuntimeEvent::Catalogue { n_tools } => {
                tracing::info!(target: "pegboard::catalogue", n_tools, "catalogue changed");
            }
        }
    }
}

fn corrected(asked: &str, tool: &str) {
    tracing::warn!(
        target: "pegboard::tool",
        event = "tool_autocorrected",
        "resolved '{}' to '{}'",
        Sanitized(asked),
        Sanitized(tool),
    );
}

fn finished(call: &CallInfo, end: &CallEnd) {
    let (latency_ms, n_bytes) = (millis(end.duration), end.n_bytes_out);
    let Some(error) = end.error else {
        log_call!(
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
    log_call!(
        warn,
        "pegboard::tool",
        call,
        "response",
        latency_ms,
        n_bytes,
        error_type = error.as_str(),
        "error {}: {}",
        Sanitized(&call.tool),
        Sanitized(end.message.as_deref().unwrap_or(error.as_str())),
    );
}

fn model_finished(call: &CallInfo, end: &ModelCallEnd) {
    let (latency_ms, model) = (millis(end.duration), end.model.to_string());
    let Some(error_type) = end.error else {
        let (n_tokens_in, n_tokens_out) = (end.usage.total_input(), end.usage.output);
        log_call!(
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
    let message = Sanitized(end.message.as_deref().unwrap_or(error_type));
    log_call!(warn, "pegboard::model", call, "response", model, latency_ms, error_type, "error: {message}");
}

fn cache(call: &CallInfo, result: CacheResult) {
    let tool = Sanitized(&call.tool);
    match result {
        CacheResult::Hit { age } => {
            log_call!(debug, "pegboard::cache", call, "response", age_ms = millis(age), "cache hit: {tool}");
        }
        CacheResult::Miss => log_call!(trace, "pegboard::cache", call, "request", "cache miss: {tool}"),
        CacheResult::Joined => log_call!(trace, "pegboard::cache", call, "request", "cache joined: {tool}"),
        CacheResult::Stored => log_call!(trace, "pegboard::cache", call, "response", "cache stored: {tool}"),
    }
}

fn output(call: &CallInfo, handle: Option<&OutputHandle>, reason: StoreReason, sizes: [usize; 3]) {
    let [bytes, lines, tokens] = sizes;
    let (event, what) = if handle.is_some() {
        ("tool_output_stored", "stored")
    } else {
        ("tool_output_truncated", "truncated")
    };
    log_call!(
        warn,
        "pegboard::output",
        call,
        "response",
        event,
        handle = handle.map(|OutputHandle(handle)| tracing::field::display(Sanitized(handle))),
        reason = reason.as_str(),
        bytes,
        lines,
        tokens,
        "output {what}: {}",
        Sanitized(&call.tool),
    );
}

fn server_state(toolbox: &str, server: &str, state: &ServerState) {
    macro_rules! log_state {
        ($level:ident, $($message:tt)+) => {
            tracing::$level!(
                target: "pegboard::server",
                toolbox = %Sanitized(toolbox),
                server = %Sanitized(server),
                $($message)+
            )
        };
    }
    match state {
        ServerState::Idle => log_state!(info, "server is idle"),
        ServerState::Starting => log_state!(info, "server is starting"),
        ServerState::Ready => log_state!(info, "server is ready"),
        ServerState::Restarting { attempt } => log_state!(warn, attempt, "server disconnected; reconnecting"),
        ServerState::NeedsLogin { fix } => log_state!(warn, "server requires login: {}", Sanitized(fix)),
        ServerState::Failed { .. } => {
            let why = state.reason().unwrap_or_default();
            let fix = state.fix().unwrap_or_default();
            log_state!(warn, "server is unavailable: {}: {}", Sanitized(&why), Sanitized(fix));
        }
        ServerState::Stopped => log_state!(info, "server stopped"),
    }
}

/// Logs the start results of all servers in one line.
fn started(servers: &[ServerStart]) {
    let n_ready = servers.iter().filter(|start| start.error.is_none()).count();
    let each = servers.iter().map(|ServerStart { server, took, error, .. }| match error {
        None => format!("{} {}ms", Sanitized(server), millis(*took)),
        Some(error) => {
            format!("{} failed after {}ms ({})", Sanitized(server), millis(*took), Sanitized(error))
        }
    });
    tracing::info!(
        target: "pegboard::server",
        "{n_ready} of {} servers are ready: {}",
        servers.len(),
        each.collect::<Vec<_>>().join(", ")
    );
}

/// Destination of a call: `mcp:github:search`.
struct Remote<'a>(&'a CallInfo);

impl fmt::Display for Remote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallInfo { kind, server, tool, .. } = self.0;
        write!(f, "{}:{}:{}", kind.as_str(), Sanitized(server), Sanitized(tool))
    }
}

/// A foreign text on one line: invisible characters are escaped and the length is limited.
struct Sanitized<'a>(&'a str);

impl fmt::Display for Sanitized<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, character) in self.0.chars().enumerate() {
            if place == MAX_TEXT_CHARS {
                return f.write_char('…');
            }
            if is_invisible(character) {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Returns `true` for control characters, zero-width characters and bidirectional marks.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that belongs to no event loop, or to one that ends, cannot report later.
    #[test]
    fn a_refusal_without_an_event_loop_is_reported_at_once() {
        let refusals = RefusalLimiter::default();
        assert_eq!(refusals.count(), Some(0));
        for _ in 0..3 {
            assert_eq!(refusals.count(), None);
        }
        assert_eq!(refusals.0.lock().n_suppressed, 0);
    }
}
