//! Draws an operation tree, one line per operation.

use std::fmt::{self, Write as _};

use pegboard_core::duration::HumanDuration;

use super::accounting::Totals;
use super::node::{OpNode, OpStatus, SessionNode};
use super::text::printable;
use super::{OpError, OpKind};

/// Maximum number of characters shown of a name.
const MAX_NAME: usize = 80;
/// Maximum number of characters shown of an error.
const MAX_ERROR: usize = 120;

impl fmt::Display for SessionNode {
    /// Draws the tree without colours, safe for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        draw_session(f, self, "")?;
        writeln!(f, "{}", totals_line(&self.totals))
    }
}

/// Draws the line of a session, then its operations; `indent` precedes all but the first line.
fn draw_session(f: &mut fmt::Formatter<'_>, session: &SessionNode, indent: &str) -> fmt::Result {
    writeln!(f, "{}", session_line(session))?;
    if session.dropped_operations > 0 {
        let rest = if has_operations(session) { '├' } else { '└' };
        writeln!(f, "{indent}{rest}─ {} not kept", counted(session.dropped_operations, "operation"))?;
    }
    let mut ops = session.steps.iter().chain(&session.turns).flat_map(|turn| &turn.ops).peekable();
    while let Some(op) = ops.next() {
        let (branch, below) = if ops.peek().is_some() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
        writeln!(f, "{indent}{branch}{}", operation_line(op))?;
        if let Some(child) = &op.child_session {
            write!(f, "{indent}{below}└─ ")?;
            draw_session(f, child, &format!("{indent}{below}   "))?;
        }
    }
    Ok(())
}

fn has_operations(session: &SessionNode) -> bool {
    !session.steps.is_empty() || !session.turns.is_empty()
}

fn session_line(session: &SessionNode) -> String {
    let status = match session.success {
        None => OpStatus::Running,
        Some(true) => OpStatus::Ok,
        Some(false) => OpStatus::Failed,
    };
    let mut line = format!("{} session {}", status_mark(status), printable(&session.id, MAX_NAME));
    if let Some(title) = &session.session_title {
        add(&mut line, format_args!(" “{}”", printable(title, MAX_NAME)));
    }
    if !session.call_path.as_str().is_empty() {
        add(&mut line, format_args!(" ({})", printable(session.call_path.as_str(), MAX_NAME)));
    }
    if let Some(status) = &session.latest_status {
        add(&mut line, format_args!(", {}", printable(status, MAX_NAME)));
    }
    add_error(&mut line, session.error.as_ref());
    line
}

fn operation_line(op: &OpNode) -> String {
    let kind = match op.kind {
        OpKind::Llm => "llm",
        OpKind::Tool => "tool",
        OpKind::Session => "agent",
        OpKind::System => "system",
    };
    let mut line = format!("{} {} {kind} ", op.op_id, status_mark(op.status));
    if let Some(server) = &op.server {
        add(&mut line, format_args!("{}/", printable(server, MAX_NAME)));
    }
    line.push_str(&printable(&op.name, MAX_NAME));
    add(&mut line, format_args!(", {}", HumanDuration::from(op.latency)));
    let n_out = op.response.as_ref().map_or(0, |response| response.size);
    for (size, what) in [(op.request.size, "in"), (n_out, "out")] {
        if size > 0 {
            add(&mut line, format_args!(", {} {what}", human_size(size)));
        }
    }
    if op.cached {
        line.push_str(", cached");
    }
    if !op.waited.is_zero() {
        add(&mut line, format_args!(", waited {}", HumanDuration::from(op.waited)));
    }
    add_error(&mut line, op.error.as_ref());
    line
}

fn add_error(line: &mut String, error: Option<&OpError>) {
    let Some(error) = error else { return };
    let message = printable(error.message(), MAX_ERROR);
    if message == error.kind() {
        add(line, format_args!(": {message}"));
    } else {
        add(line, format_args!(": {}: {message}", error.kind()));
    }
}

fn totals_line(totals: &Totals) -> String {
    let mut line = counted(totals.tools_run, "tool");
    add(&mut line, format_args!(", {}", counted(totals.agents_run, "agent")));
    for (count, what) in [
        (totals.tokens_in, "in"),
        (totals.tokens_out, "out"),
        (totals.tokens_cache_read, "from cache"),
        (totals.tokens_cache_write, "to cache"),
    ] {
        if count > 0 {
            add(&mut line, format_args!(", {} {what}", counted(count, "token")));
        }
    }
    if totals.cost_usd > 0.0 {
        add(&mut line, format_args!(", ${:.4}", totals.cost_usd));
    }
    line
}

fn add(line: &mut String, text: fmt::Arguments<'_>) {
    line.write_fmt(text).expect("writing to a String cannot fail");
}

fn status_mark(status: OpStatus) -> char {
    match status {
        OpStatus::Running => '…',
        OpStatus::Ok => '✓',
        OpStatus::Failed => '✗',
    }
}

fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Formats a number of bytes: `950`, `1.2k`, `3.4M`.
fn human_size(size: u64) -> String {
    for (unit, name) in [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")] {
        if size >= unit {
            return format!("{}.{}{name}", size / unit, size % unit / (unit / 10));
        }
    }
    size.to_string()
}
