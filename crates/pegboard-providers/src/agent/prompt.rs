//! System prompt of an agent, and the tagged final report in its replies.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pegboard_core::settings::agent::{AgentSettings, ReportFormat};

use crate::builtin::ReportSpec;

/// Nonce of one session. It distinguishes the final report from any other text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn new(nonce: String) -> Self {
        Self(nonce)
    }

    /// Returns the name of the tag around the final report.
    pub(super) fn tag_name(&self) -> String {
        format!("final-report-{}", self.0)
    }

    /// Returns the tag that opens the final report.
    pub(super) fn opening_tag(&self, report_spec: &ReportSpec) -> String {
        format!("<{} format=\"{}\" status=\"success\">", self.tag_name(), report_spec.format.as_str())
    }
}

/// Builds the system prompt: the prompt of the agent's file with its variables expanded, then the report
/// instructions.
pub(super) fn system(
    settings: &AgentSettings,
    report_spec: &ReportSpec,
    nonce: &Nonce,
    now: SystemTime,
) -> String {
    let mut system = expand_variables(settings, report_spec.format, now);
    if !system.is_empty() {
        system.push_str("\n\n");
    }
    system.push_str(&instructions(settings, report_spec, nonce));
    system
}

fn instructions(settings: &AgentSettings, report_spec: &ReportSpec, nonce: &Nonce) -> String {
    let mut text = include_str!("answer.md")
        .trim_end()
        .replace("{opening}", &nonce.opening_tag(report_spec))
        .replace("{tag}", &nonce.tag_name())
        .replace("{format}", description(report_spec.format))
        .replace("{turns}", &settings.max_turns.to_string());
    if let (ReportFormat::Json, Some(schema)) = (report_spec.format, &report_spec.schema) {
        text.push_str("\nIt must fit this JSON Schema:\n");
        text.push_str(&schema.as_json().to_string());
    }
    text
}

/// Expands `${DATETIME}` and the other variables of the prompt. Unknown variables stay as they are.
fn expand_variables(settings: &AgentSettings, format: ReportFormat, now: SystemTime) -> String {
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

/// Describes a format to the model.
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

/// Final report found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaggedReport<'t> {
    pub(super) format: Option<&'t str>,
    pub(super) status: Option<&'t str>,
    pub(super) text: &'t str,
    /// `true` if the closing tag is present.
    pub(super) is_complete: bool,
}

/// Finds the last tagged report: models quote the tag while they think.
pub(super) fn find_report<'t>(text: &'t str, nonce: &Nonce) -> Option<TaggedReport<'t>> {
    let opening_tag = format!("<{}", nonce.tag_name());
    let closing = format!("</{}>", nonce.tag_name());
    let begin = text.rfind(&opening_tag)?;
    let (attributes, rest) = text[begin + opening_tag.len()..].split_once('>')?;
    let (text, is_complete) = match rest.find(&closing) {
        Some(end) => (&rest[..end], true),
        None => (rest, false),
    };
    Some(TaggedReport {
        format: attribute(attributes, "format"),
        status: attribute(attributes, "status"),
        text: text.trim(),
        is_complete,
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
    fn a_report_is_found_only_by_its_nonce() {
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
            assert_eq!(find_report(text, &nonce()).map(|found| found.text), expected, "{text}");
        }
        let found = find_report(cases[0].0, &nonce()).expect("it is there");
        assert_eq!((found.format, found.status, found.is_complete), (Some("text"), Some("partial"), true));
    }

    #[test]
    fn prompt_variables_are_expanded() {
        let name = pegboard_core::id::ToolName::new("a").expect("a name");
        let settings = AgentSettings {
            prompt:
                "${DATETIME} ${TIMESTAMP} ${DAY} ${TIMEZONE} ${MAX_TURNS} ${MAX_TOOLS} ${OTHER} ${FORMAT}"
                    .to_owned(),
            ..AgentSettings::new(name)
        };
        let text = expand_variables(&settings, ReportFormat::Markdown, SystemTime::UNIX_EPOCH);
        assert_eq!(text, "1970-01-01T00:00:00Z 0 Thursday UTC 10 10 ${OTHER} GitHub Markdown");
    }
}
