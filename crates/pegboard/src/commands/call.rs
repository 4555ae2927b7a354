//! `pegboard call`: calls a tool, and prints its answer.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Value, json};

use super::trace::drawing::Picture;
use super::{talk, trace};
use crate::cli::arguments::{self, Words};
use crate::cli::waiting::Waiting;
use crate::cli::{Exit, Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk, ToolView, view};
use answer::Answer;

pub(super) mod answer;

/// What is called, and what becomes of the answer.
#[derive(Args)]
#[command(after_help = arguments::HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct CallTool {
    /// The tool: toolbox/server/tool, or less of it while only one can be meant
    tool: String,
    /// Its arguments: k=v, k:=json, k=@file, '{…}', or - to read them from standard input
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    /// Show what the call did, and when, on standard error
    #[arg(long)]
    trace: bool,
    /// Have the tool answer anew, though an answer is remembered
    #[arg(long)]
    no_cache: bool,
    /// Print the whole answer as the tool gave it, as JSON
    #[arg(long)]
    raw: bool,
    /// Keep the answer in a file: the first image or sound of it if there is one, or else its text
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// End well though the tool reports a failure
    #[arg(long)]
    ignore_tool_error: bool,
}

impl CallTool {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let words = Words::read(&self.arguments)?;
        let waiting = Waiting::new(globals, &self.tool);
        let tool = waiting.during(describe(desk, &self.tool)).await.map_err(unknown)?;
        let arguments = if let Some(arguments) = words.as_they_are() {
            arguments
        } else {
            let schema = tool.input_schema.as_ref().unwrap_or(&Value::Null);
            let arguments = words.fit(schema).map_err(|failure| failure.detail(&tool.signature))?;
            RawJson::from(Value::Object(arguments))
        };
        let order = self.order(globals, &tool.address).with("arguments", &arguments);
        let answered = talk::accompany(globals, desk, &Address::of(&["calls"]), &order, &waiting).await;
        let mut answer = match answered {
            Ok(answer) => Answer::new(answer),
            Err(failure) if failure.is_of(ErrorKind::InvalidParameters) => {
                return Err(failure.detail(tool.signature));
            }
            Err(failure) => return Err(failure),
        };
        answer.complete(desk).await;
        self.tell(globals, &answer)?;
        if self.trace {
            tell_trace(globals, desk, &answer).await?;
        }
        self.end(globals, &answer)
    }

    fn order(&self, globals: &Globals, tool: &str) -> RawJson {
        let mut order = json!({"tool": tool, "session": super::session()});
        if let Some(timeout) = globals.timeout.map(Duration::from) {
            order["timeoutMs"] = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).into();
        }
        if self.no_cache {
            order["noCache"] = true.into();
        }
        RawJson::from(order)
    }

    fn tell(&self, globals: &Globals, answer: &Answer) -> Result<(), Failure> {
        for warning in answer.warnings() {
            remark(globals, &format!("warning: {warning}"));
        }
        let format = globals.format_or(Format::Text);
        if let Some(path) = &self.save {
            for saved in answer.save(path)? {
                remark(globals, &saved);
            }
        } else if self.raw {
            print::exactly(answer.raw().as_bytes());
        } else if format == Format::Text {
            answer.print();
        } else {
            print::raw(format, answer.told());
        }
        if print::is_for_people() && !globals.quiet && format == Format::Text {
            remark(globals, &answer.footer());
        }
        Ok(())
    }

    fn end(&self, globals: &Globals, answer: &Answer) -> Result<ExitCode, Failure> {
        let is_text = globals.format_or(Format::Text) == Format::Text;
        match answer.is_error() && !self.ignore_tool_error {
            false => Ok(ExitCode::SUCCESS),
            true if self.raw || !is_text => Ok(Exit::Failed.into()),
            true => Err(Failure::of_kind(ErrorKind::ExecutionError, "the tool reports a failure")),
        }
    }
}

/// A tool with its schemas. Servers that its name speaks of are waited for.
pub(super) async fn describe(desk: &Desk, name: &str) -> Result<ToolView, Failure> {
    let told = desk.get(&Address::of(&["tool"]).with("name", &name)).await?;
    view(&told, "tool")
}

/// A name that is like no other still leads somewhere.
pub(super) fn unknown(failure: Failure) -> Failure {
    if failure.is_of(ErrorKind::UnknownTool) {
        failure.hint_or("pegboard tools WORDS finds tools by what they do; pegboard ls shows all")
    } else {
        failure
    }
}

/// Tells what a call did.
async fn tell_trace(globals: &Globals, desk: &Desk, answer: &Answer) -> Result<(), Failure> {
    let told = desk.get(&Address::of(&["traces", answer.trace()])).await?;
    remark(globals, trace::text(&told["trace"], Picture::Waterfall).trim_end());
    Ok(())
}
