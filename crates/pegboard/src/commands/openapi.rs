//! `pegboard openapi`: previews the tools of an OpenAPI document.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use pegboard::providers::openapi::{OpenApiImport, import};
use pegboard::settings::openapi::{OpenApiSettings, References};
use serde_json::{Value, json};

use crate::cli::{CliError, Globals, OutputFormat, print};

/// Maximum width of a column.
const MAX_WIDTH: usize = 48;

/// Arguments of `pegboard openapi`.
#[derive(Args)]
pub(crate) struct OpenapiArgs {
    /// OpenAPI document: a file, or an http:// or https:// URL
    #[arg(value_name = "FILE-OR-URL")]
    spec: String,
    /// Base URL of the service; overrides the document
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Allow references to documents outside the document's directory
    #[arg(long)]
    references_anywhere: bool,
}

impl OpenapiArgs {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        if !self.spec.contains("://") && !Path::new(&self.spec).exists() {
            return Err(CliError::not_found("not_found", format!("no such file: {}", self.spec)));
        }
        let is_url = self.spec.contains("://");
        let failed =
            |error: String| if is_url { CliError::system(error) } else { CliError::configuration(error) };
        let references = if self.references_anywhere { References::Anywhere } else { References::Near };
        let settings = OpenApiSettings {
            spec: self.spec,
            base_url: self.base_url,
            references,
            ..OpenApiSettings::default()
        };
        let import = import(&settings, Path::new("")).await.map_err(failed)?;
        print::document(globals.format_or(OutputFormat::Text), &as_json(&import), || as_table(&import));
        Ok(ExitCode::SUCCESS)
    }
}

fn as_json(import: &OpenApiImport) -> Value {
    let tools = import.tools.iter().map(|tool| {
        let entry = &tool.entry;
        json!({
            "name": entry.name(),
            "operation": tool.operation,
            "description": entry.description(),
            "inputSchema": entry.input_schema(),
            "outputSchema": Some(entry.output_schema()).filter(|schema| !schema.is_empty()),
            "tags": entry.tags(),
        })
    });
    json!({
        "title": import.title,
        "tools": tools.collect::<Vec<_>>(),
        "skipped": import.skipped,
        "warnings": import.warnings,
    })
}

fn as_table(import: &OpenApiImport) -> String {
    let rows: Vec<[&str; 3]> = import
        .tools
        .iter()
        .map(|tool| {
            let summary = tool.entry.description().lines().next().unwrap_or_default();
            [tool.entry.name(), tool.operation.as_str(), summary]
        })
        .collect();
    let skipped: Vec<[&str; 3]> =
        import.skipped.iter().map(|it| ["-", it.operation.as_str(), it.reason.as_str()]).collect();
    let width = |column: usize| {
        let all = rows.iter().chain(&skipped).map(|row| row[column].chars().count());
        all.max().unwrap_or_default().min(MAX_WIDTH)
    };
    let widths = (width(0), width(1));
    let mut text = String::new();
    for [name, operation, words] in rows.iter().chain(&skipped) {
        let line = format!("{name:<0$}  {operation:<1$}  {words}", widths.0, widths.1);
        text.push_str(printable(&line).trim_end());
        text.push('\n');
    }
    for warning in &import.warnings {
        let _ = writeln!(text, "warning: {}", printable(warning));
    }
    let (n_tools, n_skipped) = (import.tools.len(), import.skipped.len());
    let title = printable(&import.title);
    let _ = writeln!(text, "{title}: {n_tools} tools, {n_skipped} skipped");
    text
}

/// Puts untrusted text on one line; columns keep their spaces.
fn printable(text: &str) -> String {
    text.split(['\n', '\r', '\t']).collect::<Vec<_>>().join(" ")
}
