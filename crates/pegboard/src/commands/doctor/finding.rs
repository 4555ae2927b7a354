//! What was looked at, and what to do about it.

use std::fmt::Write;

use serde::Serialize;

use crate::cli::Exit;

/// How wide the names of areas are.
const AREA_WIDTH: usize = 10;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Well,
    /// Something does not work as well as it could.
    Warning,
    /// Something does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) area: Area,
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

/// What can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Area {
    Config,
    Commands,
    Servers,
    Names,
    Tools,
    Ports,
    State,
}

impl Area {
    fn title(self) -> &'static str {
        match self {
            Self::Config => "Config",
            Self::Commands => "Commands",
            Self::Servers => "Servers",
            Self::Names => "Names",
            Self::Tools => "Tools",
            Self::Ports => "Ports",
            Self::State => "State",
        }
    }
}

/// All that was looked at.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Findings {
    findings: Vec<Finding>,
}

impl Findings {
    pub(super) fn well(&mut self, area: Area, message: impl Into<String>) {
        self.add(area, Verdict::Well, message.into(), None);
    }

    pub(super) fn warning(&mut self, area: Area, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(area, Verdict::Warning, message.into(), Some(remedy.into()));
    }

    pub(super) fn problem(&mut self, area: Area, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(area, Verdict::Problem, message.into(), Some(remedy.into()));
    }

    fn add(&mut self, area: Area, verdict: Verdict, message: String, remedy: Option<String>) {
        let one_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let finding = Finding { area, verdict, message: one_line(message), remedy: remedy.map(one_line) };
        // Two servers may need the same program.
        let is_same = |known: &Finding| known.message == finding.message && known.area == finding.area;
        if !self.findings.iter().any(is_same) {
            self.findings.push(finding);
        }
    }

    /// Whether something was found in an area that does not work.
    pub(super) fn has_problem_in(&self, area: Area) -> bool {
        self.findings.iter().any(|finding| finding.area == area && finding.verdict == Verdict::Problem)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// How the command ends: by what is worst for whoever wants to use tools. `None` if all is well.
    pub(super) fn exit(&self) -> Option<Exit> {
        if self.count(Verdict::Problem) == 0 {
            return None;
        }
        Some(if self.has_problem_in(Area::Config) { Exit::Configuration } else { Exit::Unavailable })
    }

    /// For programs.
    pub(super) fn document(&self) -> serde_json::Value {
        serde_json::json!({
            "ok": self.exit().is_none(),
            "problems": self.count(Verdict::Problem),
            "warnings": self.count(Verdict::Warning),
            "findings": self.findings,
        })
    }

    /// For people: a line for each, with its remedy below.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut last = None;
        for Finding { area, verdict, message, remedy } in &self.findings {
            let title = if last == Some(*area) { "" } else { area.title() };
            last = Some(*area);
            let mark = match verdict {
                Verdict::Well => "✓",
                Verdict::Warning => "!",
                Verdict::Problem => "✗",
            };
            let _ = writeln!(text, "{title:<AREA_WIDTH$} {mark} {message}");
            if let Some(remedy) = remedy {
                let _ = writeln!(text, "{:<AREA_WIDTH$}   help: {remedy}", "");
            }
        }
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let problems = plural(self.count(Verdict::Problem), "problem");
        let _ = write!(text, "{problems}, {}", plural(self.count(Verdict::Warning), "warning"));
        text
    }
}
