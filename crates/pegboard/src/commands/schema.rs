//! `pegboard schema`: JSON Schemas of the configuration file, of a tool, or of the gateway's own tools.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use pegboard::config::{self, Configuration};
use pegboard::gateway;
use pegboard::json::RawJson;
use pegboard::telemetry::Telemetry;
use pegboard::wiring::AppOptions;
use serde_json::Value;

use super::call::{describe, unknown};
use crate::api_client::ApiClient;
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, Globals, OutputFormat, print};
use crate::trust::TrustedConfiguration;

/// Arguments of `pegboard schema`.
#[derive(Args)]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    command: Option<SchemaCommand>,
}

#[derive(Subcommand)]
pub(crate) enum SchemaCommand {
    /// Print the schema of the configuration file, for editors; this is the default
    Config,
    /// Print the input or output schema of a tool
    Tool(ToolSchemaArgs),
    /// Print the definitions of the gateway's own tools, which find and call all others
    Meta,
}

/// Arguments of `pegboard schema tool`.
#[derive(Args)]
pub(crate) struct ToolSchemaArgs {
    /// Tool: toolbox/server/tool, or any unambiguous suffix of it
    tool: String,
    /// Print the output schema instead of the input schema
    #[arg(long)]
    output_schema: bool,
}

impl SchemaArgs {
    /// Selected schema.
    pub(crate) fn command(self) -> SchemaCommand {
        self.command.unwrap_or(SchemaCommand::Config)
    }
}

impl ToolSchemaArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let spinner = Spinner::new(globals, &self.tool);
        let tool = spinner.during(describe(api, &self.tool)).await.map_err(unknown)?;
        let schema = if self.output_schema { tool.output_schema } else { tool.input_schema };
        let schema = schema.ok_or_else(|| {
            let message = format!("{} has no output schema", tool.address);
            CliError::not_found("no_schema", message).hint("call it to see an answer: pegboard call")
        })?;
        Ok(print_schema(globals, &schema))
    }
}

/// Prints the schema of the configuration file.
pub(super) fn print_config_schema(globals: &Globals) -> ExitCode {
    print_schema(globals, &config::native_schema())
}

/// Prints the definitions of the gateway's own tools.
pub(super) async fn print_meta_tools(globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, CliError> {
    let nothing = TrustedConfiguration::built_in(Configuration::default());
    let app = nothing.start(AppOptions::default(), telemetry).await?;
    let tools: Value = gateway::meta_tools(&app.runtime).iter().map(RawJson::to_value).collect();
    Ok(print_schema(globals, &tools))
}

/// Prints a document, as JSON by default.
fn print_schema(globals: &Globals, document: &Value) -> ExitCode {
    match globals.format_or(OutputFormat::Json) {
        OutputFormat::Text | OutputFormat::Json => print::list(OutputFormat::Json, document),
        format @ (OutputFormat::Ndjson | OutputFormat::Yaml) => print::list(format, document),
    }
    ExitCode::SUCCESS
}
