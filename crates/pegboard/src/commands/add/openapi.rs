//! `pegboard add openapi`: adds a web service with an OpenAPI document.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::EntrySection;
use serde_json::{Map, Value, json};

use super::{KeyedDestination, parse_headers, write_entry};
use crate::cli::{CliError, Globals};
use crate::commands::config_file::relative_to_file;

/// Arguments of `pegboard add openapi`.
#[derive(Args)]
pub(super) struct AddOpenapiArgs {
    /// Name of the service: letters, digits, - and _
    name: String,
    /// OpenAPI document: a file, or an http:// or https:// URL
    #[arg(value_name = "FILE-OR-URL")]
    spec: String,
    /// Include only operations with this tag
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tag: Vec<String>,
    /// Include only operations with this method
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    method: Vec<String>,
    /// Base URL of the service; overrides the document
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Header to send with every request
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Add the entry disabled
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    destination: KeyedDestination,
}

impl AddOpenapiArgs {
    pub(super) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let file = self.destination.entry.target.open(globals)?;
        let spec = relative_to_file(&file.path, &self.spec)?;
        let mut entry = Map::from_iter([("spec".to_owned(), json!(spec))]);
        if let Some(address) = &self.base_url {
            entry.insert("baseUrl".to_owned(), json!(address));
        }
        if !self.tag.is_empty() {
            entry.insert("tagFilter".to_owned(), json!(self.tag));
        }
        if !self.method.is_empty() {
            let methods: Vec<String> = self.method.iter().map(|method| method.to_lowercase()).collect();
            entry.insert("includeMethods".to_owned(), json!(methods));
        }
        let headers = parse_headers(&self.header)?;
        if !headers.is_empty() {
            entry.insert("headers".to_owned(), Value::Object(headers));
        }
        if self.disabled {
            entry.insert("enabled".to_owned(), json!(false));
        }
        write_entry(
            globals,
            &self.destination,
            EntrySection::OpenApiServices,
            &self.name,
            &Value::Object(entry),
        )
    }
}
