//! Prints the progress of an agent.

use std::convert::Infallible;
use std::fmt::Write;

use pegboard::duration::HumanDuration;
use pegboard::runtime::Runtime;
use pegboard::runtime::event::{CallEnd, CallInfo, ModelCallEnd, RuntimeEvent};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::cli::format::{DIM, PLAIN, one_line};
use crate::cli::print;
use crate::cli::spinner::Spinner;

/// Maximum number of characters of an untrusted text.
const MAX_CHARACTERS: usize = 160;

/// Amount of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressVerbosity {
    /// All events.
    Normal,
    /// No events.
    Quiet,
}

/// Prints runtime events as progress.
pub(super) struct ProgressPrinter<'s> {
    events: Receiver<RuntimeEvent>,
    verbosity: ProgressVerbosity,
    /// Spinner that shows what the agent waits for.
    spinner: &'s Spinner,
}

impl<'s> ProgressPrinter<'s> {
    /// Subscribes to the runtime's events.
    pub(super) fn new(runtime: &Runtime, verbosity: ProgressVerbosity, spinner: &'s Spinner) -> Self {
        Self { events: runtime.events().subscribe(), verbosity, spinner }
    }

    /// Prints events as they arrive, forever.
    pub(super) async fn follow(&mut self) -> Infallible {
        loop {
            match self.events.recv().await {
                Ok(event) => self.print(&event),
                // Events dropped under load are not printed.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Prints the events that are still queued.
    pub(super) fn drain(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.print(&event),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn print(&self, event: &RuntimeEvent) {
        if let Some(awaited) = awaited(event) {
            self.spinner.set_message(awaited);
        }
        if self.verbosity == ProgressVerbosity::Normal
            && let Some(line) = line(event)
        {
            print::error_line(&format!("{DIM}{line}{PLAIN}"));
        }
    }
}

/// Renders an event on one line; `None` if it is not shown.
fn line(event: &RuntimeEvent) -> Option<String> {
    match event {
        RuntimeEvent::Turn { call, turn, most } => Some(format!("{} turn {turn} of {most}", name(call))),
        RuntimeEvent::Status { call, status } => Some(format!("{} says: {}", name(call), printable(status))),
        RuntimeEvent::AgentWarned { call, what } => {
            Some(format!("{} warning: {}", name(call), printable(what)))
        }
        RuntimeEvent::ModelFinished { call, operation: _, end } => {
            Some(format!("{} {}", name(call), model(end)))
        }
        RuntimeEvent::ToolStarted { call } if is_shown(call) => Some(format!("{} …", name(call))),
        RuntimeEvent::ToolFinished { call, end } if is_shown(call) => {
            Some(format!("{} {}", name(call), finished(end)))
        }
        RuntimeEvent::Queued { call, queue, place } => {
            Some(format!("{} queued in '{queue}' at position {place}", name(call)))
        }
        RuntimeEvent::Dequeued { call, queue: _, waited } => {
            Some(format!("{} was queued for {}", name(call), HumanDuration::from(*waited)))
        }
        _ => None,
    }
}

/// Returns what the agent waits for after an event; `None` if that is as before.
fn awaited(event: &RuntimeEvent) -> Option<String> {
    match event {
        RuntimeEvent::Turn { call, turn, most } => Some(format!("{}: turn {turn} of {most}", call.tool)),
        RuntimeEvent::ToolStarted { call } => Some(call.tool.to_string()),
        RuntimeEvent::Queued { call, queue, place: _ } => Some(format!("{} in queue '{queue}'", call.tool)),
        _ => None,
    }
}

/// Returns `true` unless the call is one of the agent's internal tools.
fn is_shown(call: &CallInfo) -> bool {
    !["final_report", "task_status"].iter().any(|own| call.tool.ends_with(own))
}

/// Operation path and tool of a call.
fn name(call: &CallInfo) -> String {
    format!("{} {}", call.operation, call.tool)
}

fn finished(end: &CallEnd) -> String {
    let took = HumanDuration::from(end.duration);
    match &end.error {
        None if end.is_cached => format!("done in {took}, {} bytes, cached", end.n_bytes_out),
        None => format!("done in {took}, {} bytes", end.n_bytes_out),
        Some(kind) => {
            let why = end.message.as_deref().map(printable).unwrap_or_default();
            format!("failed after {took}: {} {why}", kind.as_str()).trim_end().to_owned()
        }
    }
}

fn model(end: &ModelCallEnd) -> String {
    let (model, took) = (&end.model, HumanDuration::from(end.duration));
    if let Some(kind) = end.error {
        let why = end.message.as_deref().map(printable).unwrap_or_default();
        return format!("{model} failed after {took}: {kind} {why}").trim_end().to_owned();
    }
    let mut line =
        format!("{model} replied in {took}, {} tokens in, {} out", end.usage.total_input(), end.usage.output);
    if let Some(cost) = end.cost_usd {
        let _ = write!(line, ", ${cost:.4}");
    }
    line
}

/// Puts untrusted text on one line, truncated.
pub(super) fn printable(text: &str) -> String {
    one_line(text, MAX_CHARACTERS)
}
