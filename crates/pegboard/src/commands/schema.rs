//! `pegboard schema`: what a configuration looks like, a tool, or the tools of the gateway itself, as JSON Schema.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use pegboard::config::{self, Configuration};
use pegboard::gateway;
use pegboard::json::RawJson;
use pegboard::telemetry::Telemetry;
use pegboard::wiring::{self, Surroundings};
use serde_json::Value;

use super::call::{describe, unknown};
use crate::cli::waiting::Waiting;
use crate::cli::{Failure, Format, Globals, print};
use crate::desk::Desk;

/// What is described.
#[derive(Args)]
pub(crate) struct Schema {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
pub(crate) enum What {
    /// A configuration file, for editors; this is what is printed if nothing is named
    Config,
    /// What a tool takes, or what it gives
    Tool(ToolSchema),
    /// The tools of the gateway itself, which find and call all others, as it lists them
    Meta,
}

/// Which tool, and which of its schemas.
#[derive(Args)]
pub(crate) struct ToolSchema {
    /// The tool: toolbox/server/tool, or less of it while only one can be meant
    tool: String,
    /// Print what it gives, instead of what it takes
    #[arg(long)]
    output_schema: bool,
}

impl Schema {
    /// What is described.
    pub(crate) fn what(self) -> What {
        self.what.unwrap_or(What::Config)
    }
}

impl ToolSchema {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let waiting = Waiting::new(globals, &self.tool);
        let tool = waiting.during(describe(desk, &self.tool)).await.map_err(unknown)?;
        let schema = if self.output_schema { tool.output_schema } else { tool.input_schema };
        let schema = schema.ok_or_else(|| {
            let message = format!("{} does not say what it gives", tool.address);
            Failure::not_found("no_schema", message).hint("look at an answer of it: pegboard call")
        })?;
        Ok(tell(globals, &schema))
    }
}

/// Tells what a configuration file looks like.
pub(super) fn tell_config(globals: &Globals) -> ExitCode {
    tell(globals, &config::native_schema())
}

/// Tells the tools of the gateway itself, whatever is configured.
pub(super) async fn tell_meta(globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, Failure> {
    let board = Box::pin(wiring::start(Configuration::default(), Surroundings::default(), telemetry))
        .await
        .map_err(|error| Failure::configuration(error.to_string()))?;
    let tools: Value = gateway::meta_tools(&board.runtime).iter().map(RawJson::to_value).collect();
    Ok(tell(globals, &tools))
}

/// Prints a document as what it is, unless somebody wants it otherwise.
fn tell(globals: &Globals, document: &Value) -> ExitCode {
    match globals.format_or(Format::Json) {
        Format::Text | Format::Json => print::list(Format::Json, document),
        format @ (Format::Ndjson | Format::Yaml) => print::list(format, document),
    }
    ExitCode::SUCCESS
}
