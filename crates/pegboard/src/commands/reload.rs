//! `pegboard reload`: reloads the configuration of the running gateway and approves what waits.

use std::process::ExitCode;

use clap::Args;
use pegboard::json::RawJson;
use serde_json::{Value, json};

use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::one_line;
use crate::cli::{CliError, Globals, print};

/// Maximum length of a command line.
const MAX_CHARACTERS: usize = 2_000;

/// Arguments of `pegboard reload`.
#[derive(Args)]
pub(crate) struct ReloadArgs {}

impl ReloadArgs {
    /// Asks the gateway to reload.
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let done = api.post(&ApiPath::new(&["reload"]), &RawJson::from(json!({}))).await?;
        print::document(globals.data_format(), &done, || text(&done));
        Ok(ExitCode::SUCCESS)
    }
}

fn text(done: &Value) -> String {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), MAX_CHARACTERS);
    let mut lines = vec![format!("Reloaded  {}", word(&done["changes"]))];
    for approved in done["approved"].as_array().into_iter().flatten() {
        lines.push(format!(
            "Approved  {} ({}): {}",
            word(&approved["entry"]),
            word(&approved["reason"]),
            word(&approved["action"])
        ));
    }
    lines.join("\n")
}
