//! `pegboard version`: version and supported MCP revisions.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::{CliError, Globals, OutputFormat, print};

#[expect(clippy::unnecessary_wraps, reason = "commands are alike")]
pub(crate) fn run(globals: &Globals) -> Result<ExitCode, CliError> {
    let version = env!("CARGO_PKG_VERSION");
    let revisions: Vec<String> = pegboard::wire::era::Revision::ALL.iter().map(ToString::to_string).collect();
    let (system, processor) = (std::env::consts::OS, std::env::consts::ARCH);
    let document = json!({
        "name": "pegboard",
        "version": version,
        "system": system,
        "processor": processor,
        "mcp": revisions,
    });
    print::document(globals.format_or(OutputFormat::Text), &document, || {
        format!("pegboard {version} ({system} {processor})\nMCP {}", revisions.join(", "))
    });
    Ok(ExitCode::SUCCESS)
}
