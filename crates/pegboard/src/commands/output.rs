//! `pegboard output`: answers that were too large to hand over.

use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::words::{ago, columns, harmless, now, one_line, size};
use crate::cli::{Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk};

/// How many outputs are looked at to find one.
const MAX_LISTED: usize = 1_000;
/// How many characters of a handle are shown: enough to find it by.
const HANDLE_CHARACTERS: usize = 8;

/// What is done with such answers.
#[derive(Args)]
pub(crate) struct Output {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// List them, the newest first
    Ls,
    /// Print one, or a part of it
    Cat {
        /// Its handle, or the beginning that ls shows
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        handle: String,
        /// Only these lines: 10-20, 10- or 10
        #[arg(long, value_name = "LINES")]
        lines: Option<String>,
        /// Only what is there in the JSON: $.items[0].name
        #[arg(long, value_name = "PATH", conflicts_with = "lines")]
        json_path: Option<String>,
    },
    /// Print the lines of one that match a pattern; the exit code is 1 if none does
    Grep {
        /// Its handle, or the beginning that ls shows
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        handle: String,
        /// A regular expression
        pattern: String,
        /// Take capitals for small letters
        #[arg(long, short)]
        ignore_case: bool,
        /// How many lines to print around each
        #[arg(long, short = 'C', value_name = "NUMBER", default_value_t = 0)]
        context: u64,
    },
    /// Take some away
    Rm {
        /// Their handles, or the beginnings that ls shows
        #[arg(required = true, value_parser = NonEmptyStringValueParser::new())]
        handles: Vec<String>,
    },
}

impl Output {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        match &self.what {
            None | Some(What::Ls) => list(globals, desk).await?,
            Some(What::Cat { handle, lines: None, json_path: None }) => {
                let bytes = desk.bytes(&find(desk, handle).await?).await?;
                whole(globals, handle, &bytes)?;
            }
            Some(What::Cat { handle, lines, json_path }) => {
                let whole = find(desk, handle).await?;
                let part = whole.clone().with_some("lines", lines.as_ref());
                pages(globals, desk, &whole, part.with_some("jsonPath", json_path.as_ref())).await?;
            }
            Some(What::Grep { handle, pattern, ignore_case, context }) => {
                let whole = find(desk, handle).await?;
                let part = whole.clone().with("grep", pattern).with("ignoreCase", ignore_case);
                if !pages(globals, desk, &whole, part.with("context", context)).await? {
                    return Ok(ExitCode::FAILURE);
                }
            }
            Some(What::Rm { handles }) => {
                let mut first = None;
                for handle in handles {
                    match take_away(desk, handle).await {
                        Ok(()) => remark(globals, &format!("{} is gone", one_line(handle, 100))),
                        // The others go all the same.
                        Err(failure) => first = first.or(Some(failure)),
                    }
                }
                return first.map_or(Ok(ExitCode::SUCCESS), Err);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn take_away(desk: &Desk, handle: &str) -> Result<(), Failure> {
    desk.delete(&find(desk, handle).await?).await
}

/// Prints a whole output: for programs as it is, for people as far as a terminal can show it.
fn whole(globals: &Globals, handle: &str, bytes: &[u8]) -> Result<(), Failure> {
    let text = std::str::from_utf8(bytes);
    match (globals.format_or(Format::Text), text) {
        (Format::Text, Ok(text)) if print::is_for_people() => print::text(&harmless(text)),
        (Format::Text, Err(_)) if print::is_for_people() => {
            let message = format!("{handle} is no text: {} of something else", size(bytes.len() as u64));
            return Err(Failure::usage(message)
                .hint(format!("keep it in a file: pegboard output cat {handle} > FILE")));
        }
        (Format::Text, _) => print::bytes(bytes),
        (format, Ok(text)) => print::document(format, &json!({"handle": handle, "text": text}), String::new),
        (format, Err(_)) => {
            let document = json!({"handle": handle, "base64": STANDARD.encode(bytes)});
            print::document(format, &document, String::new);
        }
    }
    Ok(())
}

/// Where an output is, by its handle or the beginning of the part of it that is its own.
async fn find(desk: &Desk, written: &str) -> Result<Address, Failure> {
    if written.contains('/') {
        return Ok(Address::of(&["outputs", written]));
    }
    let told = desk.get(&Address::of(&["outputs"]).with("limit", &MAX_LISTED)).await?;
    let handles =
        told["outputs"].as_array().into_iter().flatten().filter_map(|output| output["handle"].as_str());
    let meant: Vec<&str> = handles.filter(|handle| own(handle).starts_with(written)).collect();
    match meant.as_slice() {
        [handle] => Ok(Address::of(&["outputs", handle])),
        // The gateway tells best what there is not.
        [] => Ok(Address::of(&["outputs", written])),
        several => {
            let message = format!("{} outputs begin with '{written}'", several.len());
            Err(Failure::not_found("not_found", message).hint("give more of the handle"))
        }
    }
}

/// The part of a handle that is an output's own, and not its session's.
fn own(handle: &str) -> &str {
    handle.rsplit('/').next().unwrap_or(handle)
}

/// As much of a handle as people need.
pub(super) fn short(handle: &str) -> String {
    own(handle).chars().take(HANDLE_CHARACTERS).collect()
}

/// Prints a part, page by page; tells whether there was anything.
async fn pages(globals: &Globals, desk: &Desk, whole: &Address, part: Address) -> Result<bool, Failure> {
    let format = globals.format_or(Format::Text);
    let (mut next, mut has_any, mut all) = (Some(part), false, String::new());
    while let Some(part) = next.take().filter(|_| !print::is_unread()) {
        let page = desk.get(&part).await?;
        let content = page["content"].as_str().unwrap_or_default();
        has_any |= !content.is_empty();
        match format {
            Format::Text if content.is_empty() => {}
            Format::Text if print::is_for_people() => print::text(&harmless(content)),
            Format::Text => print::exactly(content.as_bytes()),
            Format::Json | Format::Ndjson | Format::Yaml => all.push_str(content),
        }
        if let Some(note) = page["note"].as_str() {
            remark(globals, &one_line(note, 400));
        }
        next = page["next"].as_str().map(|cursor| whole.clone().with("cursor", &cursor));
    }
    match format {
        Format::Text => {}
        Format::Json | Format::Ndjson | Format::Yaml => {
            print::document(format, &json!({"text": all}), String::new);
        }
    }
    Ok(has_any)
}

async fn list(globals: &Globals, desk: &Desk) -> Result<(), Failure> {
    let told = desk.get(&Address::of(&["outputs"])).await?;
    let format = globals.data_format();
    match format {
        Format::Ndjson => print::list(format, &told["outputs"]),
        Format::Text | Format::Json | Format::Yaml => {
            print::document(format, &told, || rows(&told["outputs"], now()));
        }
    }
    if told["outputs"].as_array().is_none_or(Vec::is_empty) {
        remark(globals, "No answer is stored. One is if it is longer than toolResponseMaxBytes allows");
    }
    Ok(())
}

fn rows(outputs: &Value, now: u64) -> String {
    let rows = outputs.as_array().into_iter().flatten().map(|output| {
        let word = |name: &str| one_line(output[name].as_str().unwrap_or_default(), 100);
        vec![
            short(&word("handle")),
            size(output["bytes"].as_u64().unwrap_or_default()),
            ago(now, output["madeAt"].as_u64().unwrap_or_default()),
            word("tool"),
            word("contentType"),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_listed_with_what_they_are_of() {
        let outputs = json!([{"handle": "session-1/d33d49fc-069c", "bytes": 1_048_576, "madeAt": 700_000, "tool": "notes__archive",
            "contentType": "text/plain"}]);
        insta::assert_snapshot!(rows(&outputs, 1_000_000), @"d33d49fc  1.0 MB  5 min ago  notes__archive  text/plain");
    }
}
