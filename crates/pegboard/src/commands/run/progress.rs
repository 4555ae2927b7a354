//! What an agent does, told while it does it.

use std::convert::Infallible;
use std::fmt::Write;

use anstream::eprintln;
use pegboard::duration::HumanDuration;
use pegboard::runtime::Runtime;
use pegboard::runtime::event::{End, Event, ModelEnd, Subject};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// How many characters of what others say are shown.
const MAX_CHARACTERS: usize = 160;
/// Light on a terminal; taken out everywhere else, and where nobody wants colours.
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loudness {
    /// Everything.
    Usual,
    /// Nothing.
    Quiet,
}

/// Somebody who listens to what happens.
pub(super) struct Progress {
    events: Receiver<Event>,
    loudness: Loudness,
}

impl Progress {
    /// Listens from now on.
    pub(super) fn of(runtime: &Runtime, loudness: Loudness) -> Self {
        Self { events: runtime.events().subscribe(), loudness }
    }

    /// Tells everything as it happens, for ever.
    pub(super) async fn follow(&mut self) -> Infallible {
        loop {
            match self.events.recv().await {
                Ok(event) => self.tell(&event),
                // Of very much that happens at once some is not told.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Tells what has happened and was not told yet.
    pub(super) fn catch_up(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.tell(&event),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn tell(&self, event: &Event) {
        if self.loudness == Loudness::Usual
            && let Some(line) = line(event)
        {
            eprintln!("{DIM}{line}{PLAIN}");
        }
    }
}

/// An event as one line; `None` if nobody wants to know.
fn line(event: &Event) -> Option<String> {
    match event {
        Event::Turn { call, turn, most } => Some(format!("{} turn {turn} of {most}", name(call))),
        Event::Status { call, status } => Some(format!("{} says: {}", name(call), printable(status))),
        Event::AgentWarned { call, what } => Some(format!("{} warning: {}", name(call), printable(what))),
        Event::ModelFinished { call, operation: _, end } => Some(format!("{} {}", name(call), model(end))),
        Event::ToolStarted { call } if is_shown(call) => Some(format!("{} …", name(call))),
        Event::ToolFinished { call, end } if is_shown(call) => {
            Some(format!("{} {}", name(call), finished(end)))
        }
        Event::Queued { call, queue, place } => {
            Some(format!("{} waits in the queue '{queue}', place {place}", name(call)))
        }
        Event::Dequeued { call, queue: _, waited } => {
            Some(format!("{} waited {}", name(call), HumanDuration::from(*waited)))
        }
        _ => None,
    }
}

/// Whether a call is one of a tool, rather than what an agent says to itself.
fn is_shown(call: &Subject) -> bool {
    !["final_report", "task_status"].iter().any(|own| call.tool.ends_with(own))
}

/// The place of a call and what it calls.
fn name(call: &Subject) -> String {
    format!("{} {}", call.operation, call.tool)
}

fn finished(end: &End) -> String {
    let took = HumanDuration::from(end.duration);
    match &end.error {
        None if end.is_cached => format!("done in {took}, {} bytes from the cache", end.n_bytes_out),
        None => format!("done in {took}, {} bytes", end.n_bytes_out),
        Some(kind) => {
            let why = end.message.as_deref().map(printable).unwrap_or_default();
            format!("failed after {took}: {} {why}", kind.as_str()).trim_end().to_owned()
        }
    }
}

fn model(end: &ModelEnd) -> String {
    let (model, took) = (&end.model, HumanDuration::from(end.duration));
    if let Some(kind) = end.error {
        let why = end.message.as_deref().map(printable).unwrap_or_default();
        return format!("{model} failed after {took}: {kind} {why}").trim_end().to_owned();
    }
    let mut line =
        format!("{model} replied in {took}, {} tokens in, {} out", end.usage.all_input(), end.usage.output);
    if let Some(cost) = end.cost_usd {
        let _ = write!(line, ", ${cost:.4}");
    }
    line
}

/// A text of somebody else, on one line and without anything that a terminal would obey.
pub(super) fn printable(text: &str) -> String {
    let is_cut = text.chars().count() > MAX_CHARACTERS;
    let shown = text.chars().take(MAX_CHARACTERS).map(|each| if each.is_control() { ' ' } else { each });
    shown.chain(is_cut.then_some('…')).collect()
}
