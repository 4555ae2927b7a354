//! What an agent's model is told before everything else.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pegboard_core::settings::agent::{AgentSettings, ReportFormat};

use crate::builtin::Wanted;

/// The mark of one session, by which its final report is told from everything else in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn new(mark: String) -> Self {
        Self(mark)
    }

    /// The name of the tag around a final report.
    pub(super) fn tag(&self) -> String {
        format!("final-report-{}", self.0)
    }

    /// The tag that begins a final report.
    pub(super) fn opening(&self, wanted: &Wanted) -> String {
        format!("<{} format=\"{}\" status=\"success\">", self.tag(), wanted.format.as_str())
    }
}

/// What an agent's model is told: the prompt of its file with every variable filled in, and how to answer.
pub(super) fn system(settings: &AgentSettings, wanted: &Wanted, nonce: &Nonce, now: SystemTime) -> String {
    let mut system = filled(settings, wanted.format, now);
    if !system.is_empty() {
        system.push_str("\n\n");
    }
    system.push_str(&instructions(settings, wanted, nonce));
    system
}

fn instructions(settings: &AgentSettings, wanted: &Wanted, nonce: &Nonce) -> String {
    let mut text = include_str!("answer.md")
        .trim_end()
        .replace("{opening}", &nonce.opening(wanted))
        .replace("{tag}", &nonce.tag())
        .replace("{format}", description(wanted.format))
        .replace("{turns}", &settings.max_turns.to_string());
    if let (ReportFormat::Json, Some(schema)) = (wanted.format, &wanted.schema) {
        text.push_str("\nIt must fit this JSON Schema:\n");
        text.push_str(&schema.as_json().to_string());
    }
    text
}

/// The prompt with `${DATETIME}` and all others filled in. What is no variable of ours stays as it is.
fn filled(settings: &AgentSettings, format: ReportFormat, now: SystemTime) -> String {
    let now = Timestamp::try_from(now).unwrap_or_default();
    let zoned = now.to_zoned(TimeZone::UTC);
    let values = [
        ("DATETIME", zoned.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ("TIMESTAMP", now.as_second().to_string()),
        ("DAY", zoned.strftime("%A").to_string()),
        ("TIMEZONE", "UTC".to_owned()),
        ("FORMAT", description(format).to_owned()),
        ("MAX_TURNS", settings.max_turns.to_string()),
        ("MAX_TOOLS", settings.max_tool_calls_per_turn.to_string()),
    ];
    let mut prompt = settings.prompt.trim().to_owned();
    for (name, value) in values {
        prompt = prompt.replace(&format!("${{{name}}}"), &value);
    }
    prompt
}

/// A format in words for a model.
fn description(format: ReportFormat) -> &'static str {
    match format {
        ReportFormat::Json => "one JSON object and nothing else",
        ReportFormat::Markdown => "GitHub Markdown",
        ReportFormat::SlackBlockKit => "a JSON array of Slack messages, each with a list of Block Kit blocks",
        ReportFormat::Tty => "plain text for a terminal, with ANSI colours where they help and no Markdown",
        ReportFormat::Pipe => "plain text for another program, without colours and without Markdown",
        ReportFormat::Text => "plain text without any markup",
        ReportFormat::SubAgent => {
            "whatever serves the agent that asked you best: complete, exact, without pleasantries"
        }
    }
}

/// A final report in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tagged<'t> {
    pub(super) format: Option<&'t str>,
    pub(super) status: Option<&'t str>,
    pub(super) text: &'t str,
    /// Whether its end is there.
    pub(super) is_whole: bool,
}

/// The final report in a text, if there is one. The last counts: models quote the tag while they think.
pub(super) fn tagged<'t>(text: &'t str, nonce: &Nonce) -> Option<Tagged<'t>> {
    let opening = format!("<{}", nonce.tag());
    let closing = format!("</{}>", nonce.tag());
    let begin = text.rfind(&opening)?;
    let (attributes, rest) = text[begin + opening.len()..].split_once('>')?;
    let (text, is_whole) = match rest.find(&closing) {
        Some(end) => (&rest[..end], true),
        None => (rest, false),
    };
    Some(Tagged {
        format: attribute(attributes, "format"),
        status: attribute(attributes, "status"),
        text: text.trim(),
        is_whole,
    })
}

fn attribute<'t>(attributes: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = attributes.split_once(&format!("{name}="))?;
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    rest[1..].split(quote).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce() -> Nonce {
        Nonce::new("0a1b".to_owned())
    }

    #[test]
    fn a_report_is_found_by_its_nonce_alone() {
        let cases = [
            (
                "<final-report-0a1b format=\"text\" status='partial'> Done. </final-report-0a1b>",
                Some("Done."),
            ),
            ("<final-report-9999 format=\"text\">Done.</final-report-9999>", None),
            ("I end with <final-report-0a1b>: so <final-report-0a1b>Yes</final-report-0a1b>", Some("Yes")),
            ("<final-report-0a1b>cut off", Some("cut off")),
            ("<final-report-0a1b", None),
            ("no tag at all", None),
        ];
        for (text, expected) in cases {
            assert_eq!(tagged(text, &nonce()).map(|found| found.text), expected, "{text}");
        }
        let found = tagged(cases[0].0, &nonce()).expect("it is there");
        assert_eq!((found.format, found.status, found.is_whole), (Some("text"), Some("partial"), true));
    }

    #[test]
    fn variables_of_a_prompt_are_filled_in() {
        let name = pegboard_core::id::ToolName::new("a").expect("a name");
        let settings = AgentSettings {
            prompt:
                "${DATETIME} ${TIMESTAMP} ${DAY} ${TIMEZONE} ${MAX_TURNS} ${MAX_TOOLS} ${OTHER} ${FORMAT}"
                    .to_owned(),
            ..AgentSettings::new(name)
        };
        let text = filled(&settings, ReportFormat::Markdown, SystemTime::UNIX_EPOCH);
        assert_eq!(text, "1970-01-01T00:00:00Z 0 Thursday UTC 10 10 ${OTHER} GitHub Markdown");
    }
}
