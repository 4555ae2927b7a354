//! Renders operations as a tree, with a waterfall of their times.

use std::fmt::Write;

use serde_json::Value;

use crate::cli::format::{DIM, GREEN, PLAIN, RED, format_millis, json_millis, one_line, visible_width};

/// Width of a bar that spans the whole time.
const BAR: usize = 20;
/// Maximum number of operations drawn.
const MAX_ROWS: usize = 500;
/// Duration of a call for which a reason is given.
const SLOW_MILLIS: u64 = 100;
/// Maximum number of characters of a name.
const MAX_NAME: usize = 48;

/// Layout of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum TraceLayout {
    /// Nesting and errors.
    Tree,
    /// Nesting, errors and times.
    Waterfall,
}

/// Operations in drawing order.
pub(in crate::commands) struct TraceDrawing {
    rows: Vec<DrawingRow>,
    n_left_out: usize,
}

struct DrawingRow {
    /// Branches that lead to the row.
    branch: String,
    status: String,
    name: String,
    place: String,
    started: u64,
    took: u64,
    delays: Delays,
    /// Operations below the row have times of their own.
    has_children: bool,
    is_cached: bool,
    error: Option<String>,
}

impl TraceDrawing {
    /// Draws one operation and its children.
    pub(in crate::commands) fn of_operation(operation: &Value) -> Self {
        let mut drawing = Self { rows: Vec::new(), n_left_out: 0 };
        drawing.add(operation, "", "");
        drawing
    }

    /// Draws all operations of a session.
    pub(in crate::commands) fn of_session(session: &Value) -> Self {
        let mut drawing = Self { rows: Vec::new(), n_left_out: 0 };
        for operation in operations(session) {
            drawing.add(operation, "", "");
        }
        drawing
    }

    fn add(&mut self, operation: &Value, branch: &str, trunk: &str) {
        if self.rows.len() >= MAX_ROWS {
            self.n_left_out += 1;
            return;
        }
        self.rows.push(DrawingRow::new(operation, branch));
        let inner: Vec<&Value> = operations(&operation["childSession"]).collect();
        for (index, operation) in inner.iter().enumerate() {
            let (mark, rest) = if index + 1 == inner.len() { ("└ ", "  ") } else { ("├ ", "│ ") };
            self.add(operation, &format!("{trunk}{mark}"), &format!("{trunk}{rest}"));
        }
    }

    /// The longest part of the time, on one line; `None` if the call was fast.
    pub(in crate::commands) fn reason(&self) -> Option<String> {
        let total = self.rows.first().map(|row| row.took).filter(|took| *took >= SLOW_MILLIS)?;
        let parts = self.rows.iter().filter(|row| !row.has_children).map(DrawingRow::longest_part);
        let (time, what) = parts.max_by_key(|(time, _)| *time)?;
        Some(format!("{} of {} {what}", format_millis(time.min(total)), format_millis(total)))
    }

    /// Renders the drawing.
    pub(in crate::commands) fn text(&self, layout: TraceLayout) -> String {
        let begun = self.rows.iter().map(|row| row.started).min().unwrap_or_default();
        let ended = self.rows.iter().map(|row| row.started + row.took).max().unwrap_or_default();
        let width = |of: fn(&DrawingRow) -> usize| self.rows.iter().map(of).max().unwrap_or_default();
        let (names, places) = (width(DrawingRow::name_width), width(|row| visible_width(&row.place)));
        let times = width(|row| visible_width(&format_millis(row.took)));
        let mut text = String::new();
        for row in &self.rows {
            let name = format!("{}{} {}", row.branch, mark(&row.status), row.name);
            let space = " ".repeat(names.saturating_sub(row.name_width()));
            let mut line = format!(
                "{name}{space}  {DIM}{:<places$}{PLAIN}  {:>times$}",
                row.place,
                format_millis(row.took)
            );
            if layout == TraceLayout::Waterfall {
                let _ = write!(line, "  {}", row.bar(begun, ended));
            }
            for (label, _, time) in row.delays.parts().into_iter().filter(|(_, _, time)| *time > 0) {
                let _ = write!(line, "  {DIM}{label} {}{PLAIN}", format_millis(time));
            }
            if row.is_cached {
                let _ = write!(line, "  {DIM}cached{PLAIN}");
            }
            let _ = writeln!(text, "{}", line.trim_end());
            if let Some(error) = &row.error {
                let below = row.branch.replace("├ ", "│ ").replace("└ ", "  ");
                let _ = writeln!(text, "{below}  {RED}{error}{PLAIN}");
            }
        }
        if self.n_left_out > 0 {
            let _ = writeln!(text, "… and {} more", self.n_left_out);
        }
        text
    }
}

impl DrawingRow {
    fn new(operation: &Value, branch: &str) -> Self {
        let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), MAX_NAME);
        let kind = match operation["kind"].as_str() {
            Some("llm") => "model",
            Some("session") => "agent",
            Some("system") => "step",
            _ => "",
        };
        let server = word(&operation["server"]);
        let error = operation["error"].as_object().map(|error| {
            let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
            let kind = if text("kind").is_empty() { text("code") } else { text("kind") };
            let both = [kind, text("message")].into_iter().filter(|part| !part.is_empty());
            one_line(&both.collect::<Vec<_>>().join(": "), 300)
        });
        let is_canceled = operation["error"]["kind"] == "canceled";
        let status = if is_canceled { "canceled" } else { operation["status"].as_str().unwrap_or_default() };
        Self {
            branch: branch.to_owned(),
            status: status.to_owned(),
            name: word(&operation["name"]),
            place: [server.as_str(), kind]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(" "),
            started: operation["startedAt"].as_u64().unwrap_or_default(),
            took: json_millis(&operation["latencyMs"]),
            delays: Delays::of(operation),
            has_children: operations(&operation["childSession"]).next().is_some(),
            is_cached: operation["cached"] == true,
            error,
        }
    }

    fn name_width(&self) -> usize {
        visible_width(&self.branch) + 2 + visible_width(&self.name)
    }

    /// Renders the time bar: a hatch for each delay, solid while the server works.
    fn bar(&self, begun: u64, ended: u64) -> String {
        let whole = ended.saturating_sub(begun).max(1);
        let column = |at: u64| {
            usize::try_from(at.saturating_sub(begun).min(whole) * BAR as u64 / whole).unwrap_or(BAR)
        };
        let from = column(self.started).min(BAR - 1);
        let to = column(self.started + self.took).clamp(from + 1, BAR);
        let mut bar = " ".repeat(from);
        let (mut drawn, mut delayed) = (from, 0);
        for (_, hatch, time) in self.delays.parts() {
            delayed = (delayed + time).min(self.took);
            let end = column(self.started + delayed).clamp(drawn, to - 1);
            bar.push_str(&hatch.repeat(end - drawn));
            drawn = end;
        }
        bar + &"█".repeat(to - drawn)
    }

    /// The longest part of its time, with a description.
    fn longest_part(&self) -> (u64, String) {
        let Delays { start, queue, question, overhead } = self.delays;
        let server = self.took.saturating_sub(start + queue + question + overhead);
        let parts = [
            (start, format!("waited for server '{}' to start", self.place)),
            (queue, format!("waited for a slot to call {}", self.name)),
            (question, format!("waited for an answer to a question of {}", self.name)),
            (overhead, "spent in Pegboard itself".to_owned()),
            (server, format!("spent in {}", if self.place.is_empty() { &self.name } else { &self.place })),
        ];
        parts.into_iter().max_by_key(|(time, _)| *time).expect("there are parts")
    }
}

/// Times of an operation in which its server did not work, in milliseconds.
#[derive(Clone, Copy)]
struct Delays {
    start: u64,
    queue: u64,
    question: u64,
    overhead: u64,
}

impl Delays {
    fn of(operation: &Value) -> Self {
        let attribute = |name: &str| {
            let text = operation["attributes"][name].as_str();
            text.and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        Self {
            start: attribute("startWaitMs"),
            queue: json_millis(&operation["waitedMs"]),
            question: attribute("questionWaitMs"),
            overhead: attribute("overheadMs"),
        }
    }

    /// Label, hatch and time of each, in drawing order.
    fn parts(&self) -> [(&'static str, &'static str, u64); 4] {
        [
            ("overhead", "┄", self.overhead),
            ("starting", "░", self.start),
            ("queued", "▒", self.queue),
            ("question", "▚", self.question),
        ]
    }
}

/// Operations of a session, in order.
pub(super) fn operations(session: &Value) -> impl Iterator<Item = &Value> {
    let turns = ["steps", "turns"].into_iter().filter_map(|name| session[name].as_array()).flatten();
    turns.filter_map(|turn| turn["ops"].as_array()).flatten()
}

/// Mark for a status.
pub(in crate::commands) fn mark(status: &str) -> String {
    match status {
        "ok" => format!("{GREEN}✓{PLAIN}"),
        "failed" => format!("{RED}✗{PLAIN}"),
        "running" => "…".to_owned(),
        "canceled" => "■".to_owned(),
        _ => "·".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_are_drawn_as_a_tree_and_waterfall() {
        let operation = |name: &str, server: &str, started: u64, took: f64| json!({"kind": "tool", "name": name, "server": server, "status": "ok", "startedAt": started, "latencyMs": took});
        let mut fetch = operation("fetch_page", "web", 1_412, 720.0);
        fetch["waitedMs"] = 210.into();
        let mut model = operation("large", "cloud", 2_200, 300.0);
        model["kind"] = "llm".into();
        model["status"] = "failed".into();
        model["error"] = json!({"code": "timeout", "message": "no reply within 300 ms"});
        let mut agent = operation("summarise", "agent", 2_132, 640.0);
        agent["childSession"] =
            json!({"turns": [{"ops": [model, operation("search", "github", 2_500, 1.0)]}]});
        let mut search = operation("search_code", "github", 1_000, 412.0);
        search["cached"] = true.into();
        let mut chain = operation("research", "chain", 1_000, 1_842.4);
        chain["childSession"] = json!({"steps": [{"ops": [search, fetch]}], "turns": [{"ops": [agent]}]});
        let drawing = TraceDrawing::of_operation(&chain);
        assert_eq!(drawing.reason().unwrap(), "510 ms of 1.8 s spent in web");
        let both = format!("{}\n{}", drawing.text(TraceLayout::Waterfall), drawing.text(TraceLayout::Tree));
        insta::assert_snapshot!(anstream::adapter::strip_str(&both), @"
        ✓ research       chain         1.8 s  ████████████████████
        ├ ✓ search_code  github       412 ms  ████  cached
        ├ ✓ fetch_page   web          720 ms      ▒▒██████  queued 210 ms
        └ ✓ summarise    agent        640 ms              ███████
          ├ ✗ large      cloud model  300 ms               ███
          │   timeout: no reply within 300 ms
          └ ✓ search     github         1 ms                  █

        ✓ research       chain         1.8 s
        ├ ✓ search_code  github       412 ms  cached
        ├ ✓ fetch_page   web          720 ms  queued 210 ms
        └ ✓ summarise    agent        640 ms
          ├ ✗ large      cloud model  300 ms
          │   timeout: no reply within 300 ms
          └ ✓ search     github         1 ms
        ");
    }

    #[test]
    fn the_longest_part_is_the_reason() {
        let operation = |attributes: Value| json!({"kind": "tool", "name": "search", "server": "x", "status": "ok", "startedAt": 0, "latencyMs": 2_400, "waitedMs": 100, "attributes": attributes});
        let cases = [
            (json!({"startWaitMs": "2100"}), "2.1 s of 2.4 s waited for server 'x' to start"),
            (
                json!({"questionWaitMs": "1500"}),
                "1.5 s of 2.4 s waited for an answer to a question of search",
            ),
            (json!({"overheadMs": "1500"}), "1.5 s of 2.4 s spent in Pegboard itself"),
            (json!({}), "2.3 s of 2.4 s spent in x"),
        ];
        for (attributes, reason) in cases {
            assert_eq!(TraceDrawing::of_operation(&operation(attributes)).reason().unwrap(), reason);
        }
        let all = operation(json!({"startWaitMs": "600", "questionWaitMs": "600", "overheadMs": "400"}));
        let text = TraceDrawing::of_operation(&all).text(TraceLayout::Waterfall);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"✓ search  x  2.4 s  ┄┄┄░░░░░▒▚▚▚▚▚██████  overhead 400 ms  starting 600 ms  queued 100 ms  question 600 ms");
        let fast = json!({"name": "search", "latencyMs": 20});
        assert_eq!(TraceDrawing::of_operation(&fast).reason(), None);
    }
}
