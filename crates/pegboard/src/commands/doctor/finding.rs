//! Findings of `pegboard doctor`, each with a remedy.

use std::fmt::Write;

use serde::Serialize;

use crate::cli::ExitReason;
use crate::cli::format::{GREEN, PLAIN, RED, YELLOW, hanging};

/// Width of the area column.
const AREA_WIDTH: usize = 10;
/// Column at which a message goes on in the next line.
const MESSAGE_INDENT: usize = AREA_WIDTH + 5;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FindingVerdict {
    /// Works.
    Ok,
    /// Works with limitations.
    Warning,
    /// Does not work.
    Problem,
}

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DoctorFinding {
    pub(super) area: CheckArea,
    pub(super) verdict: FindingVerdict,
    /// Description.
    pub(super) message: String,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

/// Area of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckArea {
    Config,
    Commands,
    Servers,
    Names,
    Tools,
    Ports,
    State,
}

impl CheckArea {
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

/// Results of all checks.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DoctorFindings {
    findings: Vec<DoctorFinding>,
}

impl DoctorFindings {
    pub(super) fn ok(&mut self, area: CheckArea, message: impl Into<String>) {
        self.add(area, FindingVerdict::Ok, message.into(), None);
    }

    pub(super) fn warning(&mut self, area: CheckArea, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(area, FindingVerdict::Warning, message.into(), Some(remedy.into()));
    }

    pub(super) fn problem(&mut self, area: CheckArea, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(area, FindingVerdict::Problem, message.into(), Some(remedy.into()));
    }

    fn add(&mut self, area: CheckArea, verdict: FindingVerdict, message: String, remedy: Option<String>) {
        let one_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let finding =
            DoctorFinding { area, verdict, message: one_line(message), remedy: remedy.map(one_line) };
        // Two servers may need the same program.
        let is_same = |known: &DoctorFinding| known.message == finding.message && known.area == finding.area;
        if !self.findings.iter().any(is_same) {
            self.findings.push(finding);
        }
    }

    /// Returns `true` if there is a problem in this area.
    pub(super) fn has_problem_in(&self, area: CheckArea) -> bool {
        self.findings.iter().any(|finding| finding.area == area && finding.verdict == FindingVerdict::Problem)
    }

    fn count(&self, verdict: FindingVerdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Exit reason for the most severe problem; `None` without problems.
    pub(super) fn exit(&self) -> Option<ExitReason> {
        if self.count(FindingVerdict::Problem) == 0 {
            return None;
        }
        Some(if self.has_problem_in(CheckArea::Config) {
            ExitReason::Configuration
        } else {
            ExitReason::Unavailable
        })
    }

    /// Renders the findings as JSON.
    pub(super) fn document(&self) -> serde_json::Value {
        serde_json::json!({
            "ok": self.exit().is_none(),
            "problems": self.count(FindingVerdict::Problem),
            "warnings": self.count(FindingVerdict::Warning),
            "findings": self.findings,
        })
    }

    /// Renders the findings as text: one line each, with the remedy below.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut last = None;
        for DoctorFinding { area, verdict, message, remedy } in &self.findings {
            let title = if last == Some(*area) { "" } else { area.title() };
            last = Some(*area);
            let mark = match verdict {
                FindingVerdict::Ok => format!("{GREEN}✓{PLAIN}"),
                FindingVerdict::Warning => format!("{YELLOW}!{PLAIN}"),
                FindingVerdict::Problem => format!("{RED}✗{PLAIN}"),
            };
            let line = format!("{title:<AREA_WIDTH$} {mark} {message}");
            let _ = writeln!(text, "{}", hanging(&line, MESSAGE_INDENT));
            if let Some(remedy) = remedy {
                let line = format!("{:<AREA_WIDTH$}   help: {remedy}", "");
                let _ = writeln!(text, "{}", hanging(&line, MESSAGE_INDENT + 2));
            }
        }
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let problems = plural(self.count(FindingVerdict::Problem), "problem");
        let _ = write!(text, "{problems}, {}", plural(self.count(FindingVerdict::Warning), "warning"));
        text
    }
}
